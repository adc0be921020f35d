#include "simt/counters/counters.h"

#include <array>
#include <iterator>

namespace simt {
namespace {

// Pointers to all counts of a Counters except those of wgmmas by shape.
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
                    &c.sectors_written,
                    &c.tma_load_bytes,
                    &c.tma_load_sectors,
                    &c.tma_store_bytes,
                    &c.tma_store_sectors,
                    &c.mbarrier_waits,
                    &c.mbarrier_stalls,
                    &c.wgmma_reads.requests,
                    &c.wgmma_reads.wavefronts,
                    &c.wgmma_reads.conflicts};
}
// The names of these counts, in the same order.
constexpr const char* names[] = {
    "launches",
    "blocks",
    "warps",
    "load requests",
    "load sectors",
    "load bytes",
    "store requests",
    "store sectors",
    "store bytes",
    "shared requests",
    "shared turns",
    "shared conflicts",
    "ldmatrix requests",
    "ldmatrix turns",
    "ldmatrix conflicts",
    "cp.async bytes",
    "mma",
    "barriers",
    "shuffles",
    "votes",
    "atomics",
    "partial",
    "sectors read",
    "sectors written",
    "TMA load bytes",
    "TMA load sectors",
    "TMA store bytes",
    "TMA store sectors",
    "mbarrier waits",
    "mbarrier stalls",
    "wgmma reads",
    "wgmma read turns",
    "wgmma read conflicts",
};
static_assert(sizeof(Counters) == std::size(names) * sizeof(uint64_t) + sizeof(Counters::wgmma));

}  // namespace

std::map<std::string, uint64_t> named_numbers(const Counters& c) {
  const auto values = numbers(c);
  std::map<std::string, uint64_t> named;
  for (size_t i = 0; i < values.size(); ++i) named[names[i]] = *values[i];
  for (size_t i = 0; i < c.wgmma.size(); ++i)
    if (c.wgmma[i]) named["wgmma m64n" + std::to_string(8 * (i + 1)) + "k16"] = c.wgmma[i];
  return named;
}

Counters& Counters::operator+=(const Counters& other) {
  const auto mine = numbers(*this);
  const auto theirs = numbers(other);
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] += *theirs[i];
  for (size_t i = 0; i < wgmma.size(); ++i) wgmma[i] += other.wgmma[i];
  return *this;
}

Counters Counters::operator*(uint64_t times) const {
  Counters product = *this;
  for (uint64_t* n : numbers(product)) *n *= times;
  for (uint64_t& n : product.wgmma) n *= times;
  return product;
}

uint64_t Counters::wgmma_flops() const {
  uint64_t flops = 0;
  for (size_t i = 0; i < wgmma.size(); ++i) flops += wgmma[i] * 2 * 64 * 16 * 8 * (i + 1);
  return flops;
}

}  // namespace simt
