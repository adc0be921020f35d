#include "simt/hopper/wgmma.h"

#include <algorithm>
#include <cstring>

#include "simt/counters/recorder.h"
#include "simt/device/control.h"
#include "simt/hopper/hopper.h"

namespace simt {
namespace {

constexpr unsigned warp_size = 32, warps = 4;

std::string name(const WgmmaShape& s) {
  const auto major = [](bool is_mn, const char* mn) { return is_mn ? mn : "K"; };
  return "wgmma.m64n" + std::to_string(s.columns) + "k16 of " + (s.is_half ? "f16" : "bf16") +
         ", A " + major(s.a_is_mn_major, "M") + "-major, B " + major(s.b_is_mn_major, "N") +
         "-major,";
}

WgmmaOperand operand_a(const WgmmaCall& c) {
  return {MatrixDescriptor::of(c.a_descriptor), wgmma_rows, c.shape.a_is_mn_major};
}
WgmmaOperand operand_b(const WgmmaCall& c) {
  return {MatrixDescriptor::of(c.b_descriptor), c.shape.columns, c.shape.b_is_mn_major};
}

}  // namespace

void Wgmmas::begin() {
  groups_.clear();
  areas_.clear();
  const size_t threads = hopper_.block.threads().size();
  for (size_t i = 0; i < threads; i += warps * warp_size)
    groups_.push_back(std::make_unique<Warpgroup>());
}

size_t Wgmmas::Warpgroup::groups() const {
  return std::min({warp[0].groups, warp[1].groups, warp[2].groups, warp[3].groups});
}

std::string Wgmmas::words(const Operation& op) const {
  return "the wgmma of " + simt::name(hopper_.block.threads()[op.issuer]) + at(op.site);
}

// The running warp's warpgroup.
Wgmmas::Warpgroup& Wgmmas::mine(unsigned& warp, const char* what, Site site) {
  Block& block = hopper_.block;
  const unsigned all = block.running().id / warp_size;
  warp = all % warps;
  const size_t first = all / warps * warps * warp_size, threads = block.threads().size();
  if (first + warps * warp_size > threads)
    block.fail("executes " + std::string(what) + " in a warpgroup of " +
                   std::to_string((threads - first) / warp_size) + " warps, not 4,",
               site);
  return *groups_[all / warps];
}

// ---- Fence -------------------------------------------------------------------------------------

void Wgmmas::fence(const WarpRegisters& named, Site site) {
  unsigned w;
  Warpgroup& group = mine(w, "wgmma.fence", site);
  Fragments& fragments = group.warp[w].fragments;
  for (unsigned i = 0; i < named.count; ++i) {
    const Registers r = named.of[0][i];
    if (const Fragment* flying = fragments.flying(r.at, 4 * size_t{r.count}); !flying) {
      Fragment* known = fragments.find(r.at, r.count);
      (known ? *known : fragments.add(named, i)).remember();
    } else if (!flying->is(r.at, r.count)) {
      hopper_.block.fail("names in wgmma.fence registers of which some are accumulators in flight,",
                         site);
    }
  }
}

// Whether to be as early as the hardware may be.
bool Wgmmas::lands_now() const {
  const auto early = lands_early();
  return early ? *early : hopper_.block.random() % 2;
}

// ---- Issue -------------------------------------------------------------------------------------

void Wgmmas::check_same(const std::array<WgmmaCall, 32>& calls, Site site) const {
  for (const WgmmaCall& c : calls)
    if (c.a_descriptor != calls[0].a_descriptor || c.b_descriptor != calls[0].b_descriptor ||
        c.adds != calls[0].adds)
      hopper_.block.fail("executes a wgmma whose descriptors or scale-d differ between lanes,",
                         site);
}

// The warpgroup's operation for the running warp's next wgmma, on which its warps must agree.
Wgmmas::Operation& Wgmmas::agree(Warpgroup& group, const WgmmaCall& call, Site site) {
  Block& block = hopper_.block;
  const unsigned me = block.running().id;
  Warp& warp = group.warp[me / warp_size % warps];
  const size_t number = warp.issued++;
  if (number == group.first + group.operations.size())
    return group.operations.emplace_back(Operation{.call = call, .site = site, .issuer = me});
  Operation& op = group.operation(number);
  const WgmmaCall& c = op.call;
  const auto differs = [&](const std::string& how) {
    block.fail("executes " + name(call.shape) + " but " + words(op) + " of the same warpgroup " +
                   how + ", and",
               site);
  };
  if (!(c.shape == call.shape) || !c.a != !call.a) differs("is " + name(c.shape));
  if (c.a_descriptor != call.a_descriptor || c.b_descriptor != call.b_descriptor)
    differs("has other descriptors");
  if (c.adds != call.adds) differs("has another scale-d");
  if (simt::at(op.site) != simt::at(site)) differs("is another");
  return op;
}

void Wgmmas::issue(const std::array<WgmmaCall, 32>& calls, Site site) {
  unsigned w;
  Block& block = hopper_.block;
  const WgmmaCall& call = calls[0];
  Warpgroup& group = mine(w, "wgmma", site);
  check_same(calls, site);
  Fragments& fragments = group.warp[w].fragments;
  const unsigned registers = call.shape.columns / 2;
  Fragment* d = fragments.find(call.d, registers);
  if (const Fragment* other = fragments.flying(call.d, 4 * size_t{registers}); other && other != d)
    block.fail("executes " + name(call.shape) + " on accumulators that " +
                   words(group.operation(other->last)) +
                   ", of another shape, has in flight: a wait is missing,",
               site);
  if (!d)
    block.fail("executes wgmma without a wgmma.fence before that names its accumulators,", site);
  if (d->flies() ? d->is_early() && !d->is_unchanged() : !d->is_unchanged())
    block.fail(d->flies() ? "executes wgmma on accumulators that have changed in flight,"
                          : "executes wgmma on accumulators that have changed since the last "
                            "wgmma.fence that names them,",
               site);
  if (call.a) {
    const Fragment* a = fragments.holding(call.a, 4);
    if (!a || !a->is_unchanged(call.a, 4))
      block.fail(
          "executes wgmma on registers of A that have changed since the last wgmma.fence "
          "that names them,",
          site);
  }
  Operation& op = agree(group, call, site);
  read_operands(op, op.issuer == block.running().id, site);
  Part& part = op.part[w];
  part.d = d;
  if (call.a)
    for (unsigned i = 0; i < warp_size; ++i) {
      part.a_at[i] = calls[i].a;
      std::memcpy(part.a[i], calls[i].a, sizeof part.a[i]);
    }
  if (!d->flies()) d->begin_flight(lands_now());
  d->last = group.warp[w].issued - 1;
  if (!d->is_early()) return;
  compute(op, w, 1);
  d->deliver();
}

// ---- Operands ----------------------------------------------------------------------------------

void Wgmmas::find_areas() {
  hopper_.block.each_shared([&](unsigned char* data, size_t bytes) {
    for (const Area& area : areas_)
      if (area.data == data) return;
    // As on a GPU, the first 1024 bytes are reserved by the system.
    const size_t end = areas_.empty() ? 1024 : areas_.back().address + areas_.back().bytes;
    areas_.push_back({data, bytes, uint32_t((end + 1023) / 1024 * 1024)});
  });
}

uint32_t Wgmmas::shared_address(const void* p, Site site) {
  find_areas();
  const auto* const byte = static_cast<const unsigned char*>(p);
  for (const Area& area : areas_)
    if (byte >= area.data && byte < area.data + area.bytes)
      return area.address + uint32_t(byte - area.data);
  hopper_.block.fail("takes the shared address of what is not in shared memory,", site);
}

const Wgmmas::Area& Wgmmas::area_of(const WgmmaOperand& operand, const WgmmaOperand::Ranges& ranges,
                                    const char* which, Site site) {
  const MatrixDescriptor& d = operand.descriptor;
  if (d.has_unknown_bits)
    hopper_.block.fail("executes wgmma with a descriptor of " + std::string(which) +
                           " that sets bits without a meaning,",
                       site);
  for (const Area& area : areas_)
    if (d.start >= area.address && d.start < area.address + area.bytes) {
      if (ranges.begin()->begin >= area.address && ranges.back().end <= area.address + area.bytes)
        return area;
      hopper_.block.fail("executes wgmma whose descriptor of " + std::string(which) + " ends " +
                             std::to_string(ranges.back().end - area.address - area.bytes) +
                             " bytes past shared memory,",
                         site);
    }
  hopper_.block.fail("executes wgmma whose descriptor of " + std::string(which) +
                         " begins outside shared memory, at " + std::to_string(d.start) + ",",
                     site);
}

// Checks each warp's read, but holds the ranges only once, for all warps.
void Wgmmas::read_operands(Operation& op, bool is_first, Site site) {
  find_areas();
  const auto read = [&](const WgmmaOperand& operand, const char* which) {
    const auto ranges = operand.ranges();
    const Area& area = area_of(operand, ranges, which, site);
    if constexpr (counting)
      if (is_first) {
        SharedAccesses& reads = Recorder::here().counters.wgmma_reads;
        const unsigned conflicts = bank_conflicts(operand);
        ++reads.requests;
        reads.wavefronts += operand.size / 4 + conflicts;
        reads.conflicts += conflicts;
      }
    for (const auto [begin, end] : ranges) {
      const Bytes bytes{area.data + (begin - area.address), end - begin};
      async_read(bytes, which, site);
      if (is_first) op.reads.push_back(hold_read(bytes, which, site));
    }
  };
  if (!op.call.a) read(operand_a(op.call), "wgmma's A");
  read(operand_b(op.call), "wgmma's B");
  if constexpr (counting)
    if (is_first) ++Recorder::here().counters.wgmma[op.call.shape.columns / 8 - 1];
}

void Wgmmas::compute(Operation& op, unsigned first, unsigned count) {
  alignas(32) float a[wgmma_k][wgmma_rows], b[wgmma_k * wgmma_most_columns];
  const WgmmaCall& call = op.call;
  const unsigned n = call.shape.columns;
  const auto unpack = [&](const WgmmaOperand& operand, const char* which, float* to) {
    const Area& area = area_of(operand, operand.ranges(), which, op.site);
    const auto pieces = operand.pieces();
    const unsigned char* at[pieces.size()];
    for (unsigned i = 0; i < 2 * operand.size; ++i) at[i] = area.data + (pieces[i] - area.address);
    unpack_operand(operand, at, call.shape.is_half, to, operand.size);
  };
  unpack(operand_b(call), "wgmma's B", b);
  if (!call.a) unpack(operand_a(call), "wgmma's A", a[0]);
  for (unsigned w = first; w < first + count; ++w) {
    Part& part = op.part[w];
    if (call.a) unpack_registers(part.a, call.shape.is_half, &a[0][16 * w], wgmma_rows);
    if (!call.adds) part.d->clear_sums();
    wgmma_product(part.d->sums(), n, &a[0][16 * w], wgmma_rows, b, n);
    part.is_done = true;
  }
}

// ---- Commit and wait ---------------------------------------------------------------------------

void Wgmmas::commit(Site site) {
  unsigned w;
  Block& block = hopper_.block;
  Warpgroup& group = mine(w, "wgmma.commit_group", site);
  Warp& warp = group.warp[w];
  if (warp.groups == group.ends.size()) group.ends.push_back(warp.issued);
  if (const size_t others = group.ends[warp.groups]; others != warp.issued)
    block.fail("commits a group after " + std::to_string(warp.issued) +
                   " wgmmas, but another warp of its warpgroup after " + std::to_string(others) +
                   ",",
               site);
  ++warp.groups;
  warp.committed = warp.issued;
  if (group.groups() < warp.groups) return;  // another warp hasn't committed it
  auto& parked = group.parked;
  if (order != Order::reverse) std::reverse(parked.begin(), parked.end());
  for (const auto& [thread, at] : parked) block.wake(thread);
  parked.clear();
}

bool Wgmmas::wait(unsigned pending, const WarpRegisters& named, Site site) {
  unsigned w;
  Block& block = hopper_.block;
  Warpgroup& group = mine(w, "wgmma.wait_group", site);
  Warp& warp = group.warp[w];
  if (warp.issued != warp.committed)
    block.fail("waits before " + words(group.operation(warp.issued - 1)) +
                   " is committed: wgmma.commit_group is missing,",
               site);
  const size_t groups = warp.groups > pending ? warp.groups - pending : 0;
  if (group.groups() < groups && !lands_now()) return false;
  const size_t end = groups ? group.ends[groups - 1] : 0;
  finish(group, end);
  for (; warp.waited < end; ++warp.waited) check_a(group.operation(warp.waited), w, site);
  for (unsigned i = 0; i < named.count; ++i) {
    const Registers r = named.of[0][i];
    Fragment* d = warp.fragments.find(r.at, r.count);
    if (!d || !d->flies()) continue;
    if (d->last >= end)
      block.fail("names in wgmma.wait_group accumulators that " + words(group.operation(d->last)) +
                     " still has in flight after it,",
                 site);
    if (!d->is_unchanged()) block.fail("waits for accumulators that have changed in flight,", site);
    d->land();
  }
  size_t waited = warp.waited;
  for (const Warp& other : group.warp) waited = std::min(waited, other.waited);
  for (; group.first < waited; ++group.first) {
    for (const Hold hold : group.operations.front().reads) release_read(hold);
    group.operations.pop_front();
  }
  return true;
}

// Computes what has been issued of the operations before `end`. A warp's wait ends only its part,
// perhaps before others issue theirs, so the operands stay held until all have waited.
void Wgmmas::finish(Warpgroup& group, size_t end) {
  for (size_t number = group.first; number < end; ++number) {
    Operation& op = group.operation(number);
    for (unsigned w = 0; w < warps; ++w) {
      unsigned count = 0;
      while (w + count < warps && op.part[w + count].d && !op.part[w + count].is_done) ++count;
      if (count) compute(op, w, count), w += count;
    }
  }
}

void Wgmmas::check_a(const Operation& op, unsigned w, Site site) const {
  if (!op.call.a) return;
  const Part& part = op.part[w];
  for (unsigned i = 0; i < warp_size; ++i)
    if (std::memcmp(part.a[i], part.a_at[i], sizeof part.a[i]))
      hopper_.block.fail(
          "waits for " + words(op) + ", whose registers of A have changed in flight,", site);
}

// ---- Ends --------------------------------------------------------------------------------------

void Wgmmas::park(unsigned pending, Site site) {
  Block& block = hopper_.block;
  const unsigned me = block.running().id;
  Warpgroup& group = *groups_[me / warp_size / warps];
  // The other warps may have committed since this warp's lanes met.
  if (group.groups() + pending >= group.warp[me / warp_size % warps].groups) return;
  group.parked.push_back({me, site});
  block.park(site);
}

void Wgmmas::returns(unsigned thread) {
  if (groups_.empty()) return;
  Warpgroup& group = *groups_[thread / warp_size / warps];
  const size_t first = thread / warp_size / warps * warps;
  const Warp& warp = group.warp[thread / warp_size - first];
  const auto& threads = hopper_.block.threads();
  for (unsigned w = 0; w < warps && warp.waited == warp.issued; ++w) {
    const size_t others = group.warp[w].issued, both = std::min(others, warp.issued);
    const Thread& other = threads[(first + w) * warp_size];
    if (other.returned && others != warp.issued)
      hopper_.block.fail_with(simt::name(both == others ? other : threads[thread]) +
                              " returned without " + words(group.operation(both)) +
                              " of its warpgroup");
  }
  if (warp.waited == warp.issued) return;
  const Operation& op = group.operation(warp.waited);
  hopper_.block.fail_with(simt::name(threads[thread]) + " returns with " + words(op) +
                          " in flight: wgmma.wait_group is missing");
}

std::string Wgmmas::hang() const {
  const auto& threads = hopper_.block.threads();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Warpgroup& group = *groups_[g];
    if (group.parked.empty()) continue;
    const auto [thread, site] = group.parked.front();
    const auto* const behind =
        std::min_element(group.warp, group.warp + warps,
                         [](const Warp& a, const Warp& b) { return a.groups < b.groups; });
    const Thread& other = threads[(g * warps + size_t(behind - group.warp)) * warp_size];
    return simt::name(threads[thread]) + " waits" + at(site) +
           " for wgmmas of its warpgroup, but " + simt::name(other) + " has committed " +
           std::to_string(behind->groups) + " groups and " +
           (other.returned ? "returned" : "waits" + at(other.site));
  }
  return {};
}

// ---- Calls by lanes ----------------------------------------------------------------------------

void wgmma_fence(const Registers* named, unsigned count, Site site) {
  struct Hand {
    const Registers* named;
  } mine{named};
  collective(mine, site, [&](auto lanes) {
    WarpRegisters all{{}, count};
    for (int i = 0; i < 32; ++i) all.of[i] = lanes(i).named;
    Hopper::here().wgmmas.fence(all, site);
  });
}

void wgmma_mma_async(const WgmmaCall& call, Site site) {
  WgmmaCall mine = call;
  collective(mine, site, [&](auto lanes) {
    std::array<WgmmaCall, 32> all;
    for (int i = 0; i < 32; ++i) all[size_t(i)] = lanes(i);
    Hopper::here().wgmmas.issue(all, site);
  });
}

void wgmma_commit_group(Site site) {
  struct {
  } mine;
  collective(mine, site, [&](auto) { Hopper::here().wgmmas.commit(site); });
}

void wgmma_wait_group(unsigned pending, const Registers* named, unsigned count, Site site) {
  struct Hand {
    const Registers* named;
    bool is_over;
  } mine{named, false};
  for (;;) {
    collective(mine, site, [&](auto lanes) {
      WarpRegisters all{{}, count};
      for (int i = 0; i < 32; ++i) all.of[i] = lanes(i).named;
      const bool is_over = Hopper::here().wgmmas.wait(pending, all, site);
      for (int i = 0; i < 32; ++i) lanes(i).is_over = is_over;
    });
    if (mine.is_over) return;
    Hopper::here().wgmmas.park(pending, site);
  }
}

uint32_t shared_address(const void* p, Site site) {
  return Hopper::here().wgmmas.shared_address(p, site);
}

}  // namespace simt
