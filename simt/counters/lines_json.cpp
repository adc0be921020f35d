#include "simt/counters/lines_json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

namespace simt {
namespace {

using Json = nlohmann::ordered_json;

// The array [write(a), write(b), ...].
template <class List, class Write>
Json list(const List& items, Write write) {
  Json all = Json::array();
  for (const auto& item : items) all.push_back(write(item));
  return all;
}

Json addresses(const LineSample& s) {
  std::vector<uint64_t> at;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (s.mask >> lane & 1) at.push_back(s.at[lane]);
  const auto step = [&](size_t i) { return int64_t(at[i] - at[i - 1]); };
  bool even = true;
  for (size_t i = 2; i < at.size(); ++i) even &= step(i) == step(1);
  if (even) return Json::array({at[0], at.size() > 1 ? step(1) : 0});
  return Json::array({at[0], list(at, [&](uint64_t a) { return int64_t(a - at[0]); })});
}

Json sample(const LineSample& s) {
  return Json::array({s.block, s.warp, s.number, s.mask, s.space, s.name, addresses(s)});
}

Json shared_name(const SharedName& n) {
  return Json::array({n.name, n.bytes, n.element_bytes, n.extents});
}

Json of_kernel(const std::string& name, const LaunchLines& k) {
  const auto place = [](uint64_t instruction) {
    return (instruction & address_mask) - program_begin();
  };
  const auto line = [&](const auto& entry) {
    const auto& [instruction, counted] = entry;
    std::string site;
    if (const auto found = k.sites.find(instruction & address_mask);
        found != k.sites.end() && found->second.line())
      site = std::string(found->second.file_name()) + ":" + std::to_string(found->second.line());
    auto samples = counted.samples;
    std::ranges::sort(samples, {},
                      [](const LineSample& s) { return std::tuple(s.block, s.warp, s.number); });
    const LineCounts& c = counted.counts;
    return Json::array({place(instruction), int(Access::kind_of(instruction)), instruction >> 56,
                        site, c.executions, c.lanes, c.partial, c.global.requests, c.global.sectors,
                        c.global.bytes, c.needed, c.used, c.shared.requests, c.shared.wavefronts,
                        c.shared.conflicts, list(samples, sample)});
  };
  const auto piece = [](const auto& entry) {
    return Json::array({entry.first, entry.second.warps, entry.second.lanes});
  };
  const auto segment = [&](const LineSegment& s) {
    return Json::array({s.block, s.warp, s.instruction ? place(s.instruction) : 0,
                        int(Access::kind_of(s.instruction)), s.requests, s.sectors, s.turns, s.mma,
                        s.exchanges});
  };
  const auto argument = [](const KernelArgument& a) {
    return Json::array({a.begin, a.end, a.element_bytes});
  };
  auto timeline = k.timeline;  // stable: a warp's segments stay in order
  std::ranges::stable_sort(timeline, {},
                           [](const LineSegment& s) { return std::pair(s.block, s.warp); });
  Json counters = Json::object();
  for (const auto& [word, n] : named_numbers(k.counters)) counters[word] = n;
  return {{"name", name},
          {"grid", k.grid},
          {"block", k.block},
          {"shared_bytes", k.shared_bytes},
          {"counters", std::move(counters)},
          {"arguments", list(k.arguments, argument)},
          {"kept", k.kept},
          {"names", list(k.names, shared_name)},
          {"lines", list(k.lines, line)},
          {"pieces", list(k.pieces, piece)},
          {"timeline", list(timeline, segment)}};
}

// Called at exit if SIMT_LINES is set, so that any program can be recorded.
void write_lines() {
  const char* const name = std::getenv("SIMT_LINES");
  const std::string text =
      to_json(Lines::take()).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::FILE* const file = std::fopen(name, "w");
  if (!file || std::fputs(text.c_str(), file) < 0 || std::fclose(file) != 0) {
    std::perror(name);
    std::_Exit(1);
  }
}

[[maybe_unused]] const bool registered = [] {
  const char* const name = std::getenv("SIMT_LINES");
  Lines::on = name && *name;
  return Lines::on && std::atexit(write_lines) == 0;
}();

}  // namespace

Json to_json(const std::map<std::string, LaunchLines>& kernels) {
  std::vector<Json> in_order(kernels.size());
  for (const auto& [name, k] : kernels) in_order[k.number] = of_kernel(name, k);
  return {{"kernels", std::move(in_order)}};
}

}  // namespace simt
