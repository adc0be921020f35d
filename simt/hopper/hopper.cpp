#include "simt/hopper/hopper.h"

#include <algorithm>

namespace simt {

Hopper::Hopper(Block& b) : block(b), proxy(b), mbarriers(*this), tma(*this), registers(b) {
  proxy.reserved = [](const Block& of, uintptr_t begin, size_t bytes) {
    return static_cast<const Hopper&>(*const_cast<Block&>(of).beside()).mbarriers.in(begin, bytes);
  };
}

void Hopper::begin() {
  if (chip().arch < 90)
    block.fail_with(name(block.running()) + " executes an instruction of sm_90, but the chip is " +
                    chip().name + " (SIMT_ARCH)");
  proxy.begin();
  mbarriers.begin();
  tma.begin();
  registers.begin();
}

void Hopper::hands_over(unsigned thread, unsigned to) {
  proxy.hands_over(thread, to);
  tma.drift();
}

bool Hopper::advance() {
  if (tma.land_one()) {
    mbarriers.progress();
    return true;
  }
  return mbarriers.time_out();
}

void Hopper::returns(unsigned thread) {
  proxy.note(thread);
  mbarriers.progress();
  tma.returns(thread);
  const auto& all = block.threads();
  if (std::all_of(all.begin(), all.end(), [](const Thread& t) { return t.returned; }))
    registers.check_groups();
}

std::string Hopper::hang() { return mbarriers.hang(); }

}  // namespace simt
