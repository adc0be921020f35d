#include "simt/hopper/hopper.h"

#include <algorithm>

#include "simt/device/control.h"

namespace simt {

Hopper::Hopper(Block& b)
    : block(b), proxy(b), mbarriers(*this), tma(*this), registers(b), wgmmas(*this) {
  proxy.reserved = [](const Block& of, uintptr_t begin, size_t bytes) {
    return static_cast<const Hopper&>(*const_cast<Block&>(of).beside()).mbarriers.in(begin, bytes);
  };
}

void Hopper::begin() {
  if (chip().arch < 90)
    block.fail_with(name(block.running()) + " executes an instruction of sm_90, but the chip is " +
                    chip().name + " (SIMT_ARCH)");
  only_waits_ = false;
  proxy.begin();
  mbarriers.begin();
  tma.begin();
  registers.begin();
  sees_earlier_grids_ = false;
  in_grid_wait_.clear();
  wgmmas.begin();
}

void Hopper::hands_over(unsigned thread, unsigned to) {
  if (only_waits_) return;
  proxy.hands_over(thread, to);
  tma.drift();
}

bool Hopper::advance() {
  if (tma.land_one()) {
    mbarriers.progress();
    return true;
  }
  if (!in_grid_wait_.empty()) {
    block.launch().earlier_writes(true);
    sees_earlier_grids_ = true;
    std::sort(in_grid_wait_.begin(), in_grid_wait_.end());
    if (order != Order::reverse) std::reverse(in_grid_wait_.begin(), in_grid_wait_.end());
    for (const unsigned thread : in_grid_wait_) block.wake(thread);
    in_grid_wait_.clear();
    mbarriers.progress();
    if (only_waits_) block.stop_beside();
    return true;
  }
  return mbarriers.time_out();
}

// Returns as late as possible: once no thread can run, the kernel ahead's writes become visible.
void Hopper::wait_for_earlier_grids(Site site) {
  Block& block = *Block::current();
  Beside* const there = block.beside();
  Hopper& hopper = there ? static_cast<Hopper&>(*there) : block.start_beside<Hopper>();
  if (!there) hopper.only_waits_ = true;
  if (hopper.sees_earlier_grids_) return;
  hopper.in_grid_wait_.push_back(block.running().id);
  block.park(site);
}

void Hopper::returns(unsigned thread) {
  if (!only_waits_) proxy.note(thread);
  mbarriers.progress();
  tma.returns(thread);
  wgmmas.returns(thread);
  const auto& all = block.threads();
  if (std::all_of(all.begin(), all.end(), [](const Thread& t) { return t.returned; }))
    registers.check_groups();
}

std::string Hopper::hang() {
  const std::string error = mbarriers.hang();
  return error.empty() ? wgmmas.hang() : error;
}

}  // namespace simt
