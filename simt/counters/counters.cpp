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

std::map<std::string, uint64_t> named_numbers(const Counters& c) {
  return {{"launches", c.launches},
          {"blocks", c.blocks},
          {"warps", c.warps},
          {"load requests", c.loads.requests},
          {"load sectors", c.loads.sectors},
          {"load bytes", c.loads.bytes},
          {"store requests", c.stores.requests},
          {"store sectors", c.stores.sectors},
          {"store bytes", c.stores.bytes},
          {"shared requests", c.shared.requests},
          {"shared turns", c.shared.wavefronts},
          {"shared conflicts", c.shared.conflicts},
          {"ldmatrix requests", c.ldmatrix.requests},
          {"ldmatrix turns", c.ldmatrix.wavefronts},
          {"ldmatrix conflicts", c.ldmatrix.conflicts},
          {"cp.async bytes", c.cp_async_bytes},
          {"mma", c.mma_m16n8k16},
          {"barriers", c.barriers},
          {"shuffles", c.shuffles},
          {"votes", c.votes},
          {"atomics", c.atomics},
          {"partial", c.partial},
          {"sectors read", c.sectors_read},
          {"sectors written", c.sectors_written}};
}

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
