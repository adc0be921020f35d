#include "simt/counters/counters.h"

#include <array>

namespace simt {
namespace {

// Calls a function for every number in a Counters.
template <class C>
auto numbers(C& c) {
  return std::array{&c.launches,
                    &c.blocks,
                    &c.warps,
                    &c.loads.requests,
                    &c.loads.sectors,
                    &c.loads.bytes,
                    &c.stores.requests,
                    &c.stores.sectors,
                    &c.stores.bytes,
                    &c.shared.requests,
                    &c.shared.wavefronts,
                    &c.shared.conflicts,
                    &c.ldmatrix.requests,
                    &c.ldmatrix.wavefronts,
                    &c.ldmatrix.conflicts,
                    &c.cp_async_bytes,
                    &c.mma_m16n8k16,
                    &c.barriers,
                    &c.shuffles,
                    &c.votes,
                    &c.atomics,
                    &c.partial,
                    &c.sectors_read,
                    &c.sectors_written};
}
static_assert(sizeof(Counters) == 24 * sizeof(uint64_t), "numbers() names each");

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  const auto mine = numbers(*this);
  const auto theirs = numbers(other);
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] += *theirs[i];
  return *this;
}

Counters Counters::operator*(uint64_t times) const {
  Counters product = *this;
  for (uint64_t* n : numbers(product)) *n *= times;
  return product;
}

}  // namespace simt
