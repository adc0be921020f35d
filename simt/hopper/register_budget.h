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
  // Executed once a warp, by the running thread for its warp.
  void set(bool increase, unsigned registers, Site);
  // The block ends: a warpgroup of which only some warps have executed it is an error.
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
