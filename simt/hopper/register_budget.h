// setmaxnreg: how a block's warpgroups share the multiprocessor's registers.
#pragma once
#include <string>
#include <vector>

#include "simt/device/block.h"

namespace simt {

class RegisterBudget {
 public:
  explicit RegisterBudget(Block& block) : block_(block) {}

  void begin() { warps_.assign((block_.threads().size() + 31) / 32, {}); }
  // Called by one lane for its warp.
  void set(bool increase, unsigned registers, Site);
  // At the block's end: fails if only some warps of a warpgroup have executed setmaxnreg.
  void check_groups() const;

 private:
  struct Change {
    bool increase;
    unsigned registers;
    Site site;
  };
  void check_total(Site) const;

  Block& block_;
  std::vector<std::vector<Change>> warps_;
};

}  // namespace simt
