#include "simt/hopper/register_budget.h"

#include <algorithm>

namespace simt {
namespace {

constexpr unsigned of_chip = 65536, group = 4;  // registers; warps of a warpgroup

}  // namespace

void RegisterBudget::set(bool increase, unsigned registers, Site site) {
  const char* const what = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (registers % 8 || registers < 24 || registers > 256)
    block_.fail("calls " + std::string(what) + " for " + std::to_string(registers) +
                    " registers, but it takes a multiple of 8 from 24 to 256,",
                site);
  const unsigned me = block_.running().id / 32;
  auto& mine = warps_[me];
  for (unsigned warp = me / group * group; warp < me / group * group + group; ++warp) {
    if (warp >= warps_.size())
      block_.fail("calls " + std::string(what) + " in a warpgroup of less than four warps,", site);
    const auto& theirs = warps_[warp];
    if (theirs.size() <= mine.size()) continue;
    const Change& c = theirs[mine.size()];
    if (c.increase != increase || c.registers != registers)
      block_.fail("calls " + std::string(what) + " for " + std::to_string(registers) +
                      " registers, but warp " + std::to_string(warp) + " of its warpgroup has " +
                      std::to_string(c.registers) + " of setmaxnreg." +
                      (c.increase ? "inc" : "dec") + at(c.site) + ",",
                  site);
  }
  mine.push_back({increase, registers, site});
  check_total(site);
}

// Once every warp has set its registers, their sum must fit.
void RegisterBudget::check_total(Site site) const {
  unsigned together = 0;
  for (const auto& changes : warps_) {
    if (changes.empty()) return;
    together += 32 * changes.back().registers;
  }
  if (together > of_chip)
    block_.fail("brings the block's warps to " + std::to_string(together) + " registers of " +
                    std::to_string(of_chip) + ": setmaxnreg.inc would wait forever,",
                site);
}

void RegisterBudget::check_groups() const {
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    const size_t first = warp / group * group;
    if (warps_[warp].size() == warps_[first].size()) continue;
    const size_t more = warps_[warp].size() > warps_[first].size() ? warp : first,
                 less = more == warp ? first : warp;
    block_.fail_with("warp " + std::to_string(more) + " calls setmaxnreg" +
                     at(warps_[more][warps_[less].size()].site) + ", but warp " +
                     std::to_string(less) + " of its warpgroup doesn't");
  }
}

}  // namespace simt
