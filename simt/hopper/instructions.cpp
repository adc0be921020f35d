#include "simt/hopper/instructions.h"

#include <bit>
#include <cstring>
#include <string>

#include "simt/device/control.h"
#include "simt/hopper/box.h"
#include "simt/hopper/hopper.h"

namespace simt {
namespace {

Block& block() { return *Block::current(); }
Mbarriers& mbarriers() { return Hopper::here().mbarriers; }

// Fails for a map, an address or a number of coordinates that the hardware refuses.
Box box_of(const CUtensorMap& map, const void* shared, const int* at, unsigned rank,
           const uint16_t* offsets, const char* who, Site site) {
  Box box;
  TensorMap& m = box.map;
  if (reinterpret_cast<uintptr_t>(&map) % 64)
    block().fail("calls " + std::string(who) + " with a tensor map that isn't aligned to 64 bytes,",
                 site);
  if (!unpack(map, &m))
    block().fail("calls " + std::string(who) + " with something that is not a tensor map,", site);
  if (m.im2col != (offsets != nullptr))
    block().fail("calls " + std::string(who) + " with a tensor map made for " +
                     (m.im2col ? "im2col," : "tiles,"),
                 site);
  if (m.rank != rank)
    block().fail("calls " + std::string(who) + " with " + std::to_string(rank) +
                     " coordinates, but the tensor map has rank " + std::to_string(m.rank) + ",",
                 site);
  if (m.swizzle_bytes && m.row_bytes() != m.swizzle_bytes)
    block().fail("calls " + std::string(who) + " for rows of " + std::to_string(m.row_bytes()) +
                     " bytes under a swizzle of " + std::to_string(m.swizzle_bytes) +
                     ", which no source describes,",
                 site);
  // At least 128 bytes, and the swizzle's pattern must begin where the box begins.
  const unsigned alignment = std::max(128u, 8 * m.swizzle_bytes);
  block().check_aligned(shared, alignment, who, site);
  std::copy(at, at + rank, box.at);
  for (unsigned i = 0; offsets && i < rank - 2; ++i) {
    const unsigned most = rank == 3 ? 65535 : rank == 4 ? 255 : 31;
    if (offsets[i] > most)
      block().fail("calls " + std::string(who) + " with the offset " + std::to_string(offsets[i]) +
                       ", but with this rank it is at most " + std::to_string(most) + ",",
                   site);
    box.offset[i] = offsets[i];
  }
  return box;
}

void check_inside(const void* p, size_t bytes, const char* who, Site site) {
  block().check_shared_range(p, bytes, who, site);
}

void check_bulk(const void* global, const void* shared, unsigned bytes, const char* who,
                Site site) {
  block().check_aligned(global, 16, who, site);
  block().check_aligned(shared, 16, who, site);
  if (bytes % 16 || !bytes)
    block().fail("calls cp.async.bulk for " + std::to_string(bytes) +
                     " bytes, but it copies multiples of 16,",
                 site);
  check_inside(shared, bytes, who, site);
}

}  // namespace

// ---- mbarrier ----------------------------------------------------------------------------------

void mbarrier_init(uint64_t* m, unsigned arrivals, Site site) {
  mbarriers().init(m, arrivals, site);
}
void mbarrier_inval(uint64_t* m, Site site) { mbarriers().inval(m, site); }
void mbarrier_arrive(uint64_t* m, Site site) { mbarriers().arrive(m, "mbarrier.arrive", site); }
void mbarrier_expect_tx(uint64_t* m, unsigned bytes, Site site) {
  mbarriers().expect_tx(m, bytes, "mbarrier.expect_tx", site);
}
void mbarrier_arrive_expect_tx(uint64_t* m, unsigned bytes, Site site) {
  mbarriers().expect_tx(m, bytes, "mbarrier.arrive.expect_tx", site);
  mbarriers().arrive(m, "mbarrier.arrive.expect_tx", site);
}
bool mbarrier_try_wait_parity(uint64_t* m, unsigned parity, Site site) {
  return mbarriers().try_wait(m, parity, site);
}
void mbarrier_wait_parity(uint64_t* m, unsigned parity, Site site) {
  mbarriers().wait(m, parity, site);
}
void fence_mbarrier_init() { mbarriers().fence(block().running().id); }

// ---- TMA ---------------------------------------------------------------------------------------

void tensor_load(void* shared, const CUtensorMap& map, uint64_t* mbarrier, const int* at,
                 unsigned rank, const uint16_t* offsets, Site site) {
  const char* const who = offsets ? "TMA load (im2col)" : "TMA load";
  const Box box = box_of(map, shared, at, rank, offsets, who, site);
  check_inside(shared, box.map.box_bytes(), who, site);
  Hopper::here().tma.load(
      {shared, box.map.box_bytes()}, [box](unsigned char* to) { box.load(to); }, mbarrier, who,
      site);
}

void tensor_store(const CUtensorMap& map, const void* shared, const int* at, unsigned rank,
                  bool adds, Site site) {
  const char* const who = adds ? "TMA reduction" : "TMA store";
  const Box box = box_of(map, shared, at, rank, nullptr, who, site);
  check_inside(shared, box.map.box_bytes(), who, site);
  if (adds && !can_add(box.map.type))
    block().fail("calls " + std::string(who) + " for a type that TMA doesn't add,", site);
  Hopper::here().tma.store(
      {shared, box.map.box_bytes()},
      [box, adds, shared](const unsigned char* bytes) {
        box.store(bytes, reinterpret_cast<uintptr_t>(shared), adds);
      },
      who, site);
}

void bulk_load(void* shared, const void* global, unsigned bytes, uint64_t* mbarrier, Site site) {
  const char* const who = "cp.async.bulk load";
  check_bulk(global, shared, bytes, who, site);
  Hopper::here().tma.load(
      {shared, bytes},
      [=](unsigned char* to) {
        std::memcpy(to, global, bytes);
        if constexpr (counting) Recorder::here().tma(global, bytes, false);
      },
      mbarrier, who, site);
}

void bulk_store(void* global, const void* shared, unsigned bytes, Site site) {
  const char* const who = "cp.async.bulk store";
  check_bulk(global, shared, bytes, who, site);
  Hopper::here().tma.store(
      {shared, bytes},
      [=](const unsigned char* from) {
        std::memcpy(global, from, bytes);
        if constexpr (watching) Unwritten::instance().wrote(global, bytes);
        if constexpr (counting) Recorder::here().tma(global, bytes, true);
      },
      who, site);
}

void bulk_commit() { Hopper::here().tma.commit(); }
void bulk_wait(unsigned pending, bool only_reads) { Hopper::here().tma.wait(pending, only_reads); }

// ---- Threads ----------------------------------------------------------------------------------

unsigned thread_in_block() { return block().running().id; }
void grid_dependency_wait(Site site) {
  if (block().launch().earlier_writes) Hopper::wait_for_earlier_grids(site);
}

void check_stmatrix(const void* row, Site site) {
  block().check_shared(row, 16, "stmatrix", site);
  if constexpr (counting)
    Recorder::here().note(__builtin_return_address(0), AccessKind::store, 16, row);
  if constexpr (watching)
    if (Races::runs())
      Races::instance().note(Races::place_of_site(std::bit_cast<void*>(site)), Touch::write, row,
                             16);
}

void set_max_registers(bool increase, unsigned registers, Site site) {
  if (elect(all_lanes, site)) Hopper::here().registers.set(increase, registers, site);
}

// PTX doesn't specify which lane is elected, only that the same mask always elects the same lane.
bool elect(uint32_t mask, Site site) {
  const uint32_t lanes = ballot(mask, true, site);
  unsigned leader = static_cast<unsigned>(std::countr_zero(lanes));
  if (order == Order::reverse) leader = 31 - static_cast<unsigned>(std::countl_zero(lanes));
  if (order == Order::random)
    while (!(lanes >> (leader = (leader * 5 + 1) % 32) & 1)) {
    }
  return block().running().id % 32 == leader;
}

}  // namespace simt
