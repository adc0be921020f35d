// Hopper's asynchronous units, created for a block at its first instruction that needs them.
#pragma once
#include <utility>

#include "simt/device/block.h"
#include "simt/hopper/mbarrier.h"
#include "simt/hopper/proxy_state.h"
#include "simt/hopper/register_budget.h"
#include "simt/hopper/tma.h"
#include "simt/hopper/wgmma.h"

namespace simt {

class Hopper : public Beside {
 public:
  explicit Hopper(Block& b);
  // The running block's.
  static Hopper& here() {
    Block& b = *Block::current();
    Beside* const there = b.beside();
    Hopper& hopper = there ? static_cast<Hopper&>(*there) : b.start_beside<Hopper>();
    if (std::exchange(hopper.only_waits_, false)) hopper.proxy.begin();
    return hopper;
  }

  void begin() override;
  void hands_over(unsigned thread, unsigned to) override;
  bool advance() override;
  void returns(unsigned thread) override;
  std::string hang() override;

  static void wait_for_earlier_grids(Site);

  Block& block;
  ProxyState proxy;
  Mbarriers mbarriers;
  Tma tma;
  RegisterBudget registers;
  Wgmmas wgmmas;

 private:
  bool only_waits_ = false;  // for griddepcontrol.wait alone, shared memory isn't compared
  bool sees_earlier_grids_ = false;
  std::vector<unsigned> in_grid_wait_;
};

}  // namespace simt
