// The functions of device.h, forwarded to the running block.
#include "simt/device/device.h"

#include <atomic>
#include <bit>

#include "simt/device/block.h"
#include "simt/device/control.h"

namespace simt {
namespace {

std::atomic<bool> threads_met = false, copies_met = false;

// Host threads share the flags' cache line, so each writes it only once.
void note(std::atomic<bool>& met) noexcept {
  if (!met.load(std::memory_order_relaxed)) met.store(true, std::memory_order_relaxed);
}

Block& block() { return *Block::current(); }

simt::Place place_of(Site site) {
  if constexpr (watching) return Races::place_of_site(std::bit_cast<void*>(site));
  return simt::Place(site.line());  // unused
}

}  // namespace

void wait_for_block(Site site) { called(site), block().wait_for_block(site); }
unsigned count_in_block(bool yes, Site site) {
  return called(site), block().count_in_block(yes, site);
}
void wait_at_barrier(unsigned id, unsigned threads, Site site) {
  called(site, AccessKind::numbered_barrier), block().wait_at_barrier(id, threads, site);
}
void wait_for_lanes(uint32_t mask, Site site) {
  called(site, AccessKind::lanes_wait), block().wait_for_lanes(mask, site);
}
uint32_t ballot(uint32_t mask, bool yes, Site site) {
  return called(site), block().ballot(mask, yes, site);
}
uint64_t shuffle(uint32_t mask, uint64_t bits, From from, unsigned argument, unsigned width,
                 Site site) {
  return called(site), block().shuffle(mask, bits, from, argument, width, site);
}
void wait_with_hand(void* hand, const void* work, WarpWork do_work, Site site) {
  called(site), block().wait_with_hand(hand, work, do_work, site);
}

void meet() noexcept { note(threads_met); }
Meetings meetings() { return {threads_met, copies_met}; }
void forget_meetings() { threads_met = copies_met = false; }
std::optional<bool> lands_early() {
  note(copies_met);
  const bool by_order = delivery == Delivery::as_order;
  if (delivery == Delivery::random || (by_order && order == Order::random)) return {};
  return by_order ? order == Order::reverse : delivery == Delivery::early;
}

void* shared_memory(size_t bytes, const char* name, Extents extents) {
  return block().shared_memory(bytes, name, extents);
}
void* shared_variable(const char* name, size_t bytes, Site site, Extents extents) {
  return block().shared_variable(name, bytes, site, extents);
}
void check_aligned(const void* p, size_t bytes, const char* what, Site site) {
  block().check_aligned(p, bytes, what, site);
}
void check_shared(const void* p, size_t bytes, const char* what, Site site) {
  block().check_shared(p, bytes, what, site);
}
void check_ldmatrix(const void* row, Site site) {
  called(site), block().check_shared(row, 16, "ldmatrix", site);
  if constexpr (counting)
    Recorder::here().note(__builtin_return_address(0), AccessKind::ldmatrix, 16, row);
  if constexpr (watching)
    if (Races::runs()) Races::instance().note(place_of(site), Touch::read, row, 16);
}
void count_mma() {
  if constexpr (counting) Recorder::here().exchange(AccessKind::mma, 32);
}
void copy_async(void* to, const void* from, size_t bytes, size_t from_bytes, Site site) {
  block().check_shared(to, bytes, "cp.async", site);
  called(site), check_aligned(from, bytes, "cp.async", site);
  if constexpr (counting) {
    const void* const place = __builtin_return_address(0);
    Recorder::here().note(place, AccessKind::store, unsigned(bytes), to);
    if (from_bytes) Recorder::here().note(place, AccessKind::cp_async, unsigned(from_bytes), from);
  }
  if constexpr (watching)
    if (Races::runs()) {
      if (from_bytes) Races::instance().note(place_of(site), Touch::read, from, from_bytes);
      Races::instance().copy_begins(place_of(site), to, bytes);
    }
  block().copy_async({to, from, bytes, from_bytes, 0});
}
void copy_commit() { called({}, AccessKind::copy_commit), block().copy_commit(); }
void copy_wait(unsigned pending) { called({}, AccessKind::copy_wait), block().copy_wait(pending); }

void fail(const char* what, Site site) { block().fail(what, site); }
void refuse_in_kernel(const char* what, Site site) {
  if (Block* b = Block::current()) b->fail(what, site);
}

}  // namespace simt
