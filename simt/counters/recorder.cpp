#include "simt/counters/recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "simt/counters/sectors.h"

namespace simt {
namespace {

constexpr unsigned warp_size = 32, banks = 32, word = 4;

std::mutex mutex;
Counters of_launch;  // of the launch that runs
std::map<std::string, Counters>& of_kernels() {
  static auto& all = *new std::map<std::string, Counters>;  // leaked: threads may run at exit
  return all;
}

// Sorts the values, which usually are in order already, and returns how many are distinct.
template <class T>
unsigned distinct(T* begin, T* end) {
  if (!std::is_sorted(begin, end)) std::sort(begin, end);
  return unsigned(std::unique(begin, end) - begin);
}

}  // namespace

void Recorder::begin(unsigned threads, const Extent& block) {
  threads_ = threads;
  if (lists_.size() < threads) lists_.resize(threads);
  shared_.clear();
  counters = {.blocks = 1, .warps = (threads + warp_size - 1) / warp_size};
  if (Lines::on) lines.begin(threads, block);
}

void Recorder::note(const void* place, AccessKind kind, unsigned bytes, const void* address) {
  if (!list_) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (!is_shared(at) && !is_device_address(address)) return;
  if (list_->size() == most_listed) refuse_more();
  list_->push_back(Access::of(place, kind, bytes, address));
}

// A thread that polls for a value that is never written would fill the host's memory.
void Recorder::refuse_more() const {
  std::fprintf(
      stderr,
      "simt: thread %u of a block makes %zu accesses without a wait for other threads: too "
      "many to count\n",
      thread_, most_listed);
  std::abort();
}

void Recorder::tma(const void* address, size_t bytes, bool written) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) / 32,
                  end = (reinterpret_cast<uintptr_t>(address) + bytes + 31) / 32;
  for (uintptr_t sector = begin; sector < end; ++sector) touch_sector(sector, written);
  (written ? counters.tma_store_bytes : counters.tma_load_bytes) += bytes;
  (written ? counters.tma_store_sectors : counters.tma_load_sectors) += end - begin;
}

// The n-th accesses of all lanes are one request until the lanes diverge; after that, accesses are
// matched by instruction.
void Recorder::count_warp(unsigned begin) {
  const unsigned lanes = std::min(warp_size, threads_ - begin);
  const std::vector<Access>* const lists = &lists_[begin];
  size_t together = lists[0].size();
  for (unsigned lane = 1; lane < lanes; ++lane) together = std::min(together, lists[lane].size());
  size_t i = 0;
  for (; i < together; ++i) {
    const Access* by_lane[warp_size];
    bool same = true;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      by_lane[lane] = &lists[lane][i];
      same &= by_lane[lane]->instruction == by_lane[0]->instruction;
    }
    if (!same) break;
    count(by_lane, begin, lanes);
  }
  count_apart(i, begin, lanes);
  for (unsigned lane = 0; lane < lanes; ++lane) lists_[begin + lane].clear();
  if (Lines::on) lines.count_pieces(begin, lanes);
}

void Recorder::count_apart(size_t done, unsigned first, unsigned lanes) {
  size_t at[warp_size];
  bool any = false;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    auto& list = lists_[first + lane];
    at[lane] = done;
    any |= done < list.size();
    if (done < list.size())
      std::stable_sort(
          list.begin() + std::ptrdiff_t(done), list.end(),
          [](const Access& a, const Access& b) { return a.instruction < b.instruction; });
  }
  while (any) {
    uint64_t next = ~uint64_t{0};
    for (unsigned lane = 0; lane < lanes; ++lane)
      if (const auto& list = lists_[first + lane]; at[lane] < list.size())
        next = std::min(next, list[at[lane]].instruction);
    const Access* by_lane[warp_size];
    any = false;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      const auto& list = lists_[first + lane];
      const bool takes_part = at[lane] < list.size() && list[at[lane]].instruction == next;
      by_lane[lane] = takes_part ? &list[at[lane]++] : nullptr;
      any |= at[lane] < list.size();
    }
    count(by_lane, first, lanes);
  }
}

// Counts one instruction of a warp; the entry of a lane that doesn't execute it is null.
void Recorder::count(const Access* by_lane[32], unsigned first, unsigned lanes) {
  uintptr_t shared[warp_size], global[warp_size];
  uint32_t in_shared = 0;
  unsigned in_global = 0, marks = 0;
  const Access* one = nullptr;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (!by_lane[lane]) continue;
    one = by_lane[lane];
    if (one->kind() > AccessKind::cp_async)
      ++marks;
    else if (is_shared(one->address))
      shared[lane] = one->address, in_shared |= 1u << lane;
    else
      global[in_global++] = one->address;
  }
  if (marks) return lines.event(first / warp_size, one->instruction, marks, lanes);
  counters.partial += unsigned(std::popcount(in_shared)) + in_global < lanes;
  counters.atomics += one->kind() == AccessKind::atomic;
  if (one->kind() == AccessKind::cp_async && in_global)
    counters.cp_async_bytes += uint64_t{one->bytes()} * in_global;
  GlobalAccesses of_global;
  SharedAccesses of_shared;
  if (in_global) {
    of_global = count_global(*one, global, in_global);
    (one->kind() == AccessKind::store ? counters.stores : counters.loads) += of_global;
  }
  if (in_shared) {
    of_shared = count_shared(one->bytes(), shared, in_shared);
    (one->kind() == AccessKind::ldmatrix ? counters.ldmatrix : counters.shared) += of_shared;
  }
  if (Lines::on) tell_lines(by_lane, first, lanes, in_shared, of_global, of_shared);
}

// The lanes that access shared memory form one request, those that access global memory another.
void Recorder::tell_lines(const Access* by_lane[32], unsigned first, unsigned lanes,
                          uint32_t in_shared, GlobalAccesses of_global, SharedAccesses of_shared) {
  std::array<uint64_t, warp_size> at{};
  uint32_t all = 0;
  int space = 0;
  uint64_t instruction = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (!by_lane[lane]) continue;
    all |= 1u << lane;
    at[lane] = by_lane[lane]->address, instruction = by_lane[lane]->instruction;
    for (size_t i = 0; in_shared >> lane & 1 && i < shared_.size(); ++i)
      if (at[lane] - shared_[i].begin < shared_[i].bytes) {
        at[lane] -= shared_[i].begin, space = int(i);
        break;
      }
  }
  const bool partial = unsigned(std::popcount(all)) < lanes;
  const unsigned warp = first / warp_size;
  if (of_global.requests)
    lines.request(warp, {instruction, all & ~in_shared, partial, -1, at, of_global, {}});
  if (in_shared)
    lines.request(
        warp, {instruction, in_shared, partial && !of_global.requests, space, at, {}, of_shared});
}

GlobalAccesses Recorder::count_global(const Access& access, const uintptr_t (&addresses)[32],
                                      unsigned n) {
  const unsigned bytes = access.bytes();
  uintptr_t sectors[4 * warp_size];
  unsigned count = 0;
  for (unsigned i = 0; i < n; ++i)
    for (uintptr_t s = addresses[i] / 32; s <= (addresses[i] + bytes - 1) / 32; ++s)
      if (!count || sectors[count - 1] != s) sectors[count++] = s;
  count = distinct(sectors, sectors + count);
  const bool writes = access.kind() == AccessKind::store;  // and does not read
  const bool both = access.kind() == AccessKind::atomic;
  for (unsigned i = 0; i < count; ++i) {
    touch_sector(sectors[i], writes);
    if (both) touch_sector(sectors[i], true);
  }
  return {.requests = 1, .sectors = count, .bytes = uint64_t{bytes} * n};
}

// Accesses of up to 4 bytes are served for all lanes at once, those of 8 bytes for half the lanes,
// those of 16 for a quarter. In a turn, each bank serves one word, to any number of lanes.
SharedAccesses Recorder::count_shared(unsigned bytes, const uintptr_t (&addresses)[32],
                                      uint32_t lanes) {
  SharedAccesses cost{.requests = 1};
  const unsigned at_once = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
  for (unsigned first = 0; first < warp_size; first += at_once) {
    uintptr_t words[4 * warp_size];
    unsigned count = 0;
    for (unsigned lane = first; lane < first + at_once; ++lane)
      if (lanes >> lane & 1)
        for (uintptr_t w = addresses[lane] / word; w <= (addresses[lane] + bytes - 1) / word; ++w)
          if (!count || words[count - 1] != w) words[count++] = w;
    if (!count) continue;
    count = distinct(words, words + count);
    std::array<uint8_t, banks> turns{};
    for (unsigned i = 0; i < count; ++i) ++turns[words[i] % banks];
    const unsigned most = *std::max_element(turns.begin(), turns.end());
    cost.wavefronts += most;
    cost.conflicts += most - 1;
  }
  return cost;
}

void Recorder::barrier() {
  const unsigned warps = (threads_ + warp_size - 1) / warp_size;
  counters.barriers += warps;
  if (!Lines::on) return;
  const uint64_t instruction = Access::of(place_, AccessKind::barrier, 0, nullptr).instruction;
  for (unsigned warp = 0; warp < warps; ++warp) {
    count_warp(warp * warp_size);
    const unsigned lanes = std::min(warp_size, threads_ - warp * warp_size);
    lines.event(warp, instruction, lanes, lanes);
  }
}

void Recorder::exchange(AccessKind kind, unsigned lanes) {
  ++(kind == AccessKind::shuffle ? counters.shuffles
     : kind == AccessKind::vote  ? counters.votes
                                 : counters.mma_m16n8k16);
  if (!Lines::on) return;
  const unsigned warp = thread_ / warp_size;
  lines.event(warp, Access::of(place_, kind, 0, nullptr).instruction, lanes,
              std::min(warp_size, threads_ - warp * warp_size));
}

void Recorder::end() {
  pause();
  for (unsigned begin = 0; begin < threads_; begin += warp_size) count_warp(begin);
  if (Lines::on) lines.end((threads_ + warp_size - 1) / warp_size);
  const std::lock_guard lock(mutex);
  of_launch += counters;
}

void count_launch(const char* kernel) {
  const std::lock_guard lock(mutex);
  Counters& c = of_launch;
  c.launches = 1;
  const auto [read, written] = take_touched_sectors();
  c.sectors_read += read;
  c.sectors_written += written;
  if (Lines::on) Lines::end_launch(c);
  of_kernels()[kernel] += std::exchange(c, {});
}

void count_bytes(const char* name, double read, double written) {
  const std::lock_guard lock(mutex);
  of_kernels()[name] +=
      {.sectors_read = uint64_t(read / 32), .sectors_written = uint64_t(written / 32)};
}

std::map<std::string, Counters> take_counters() {
  const std::lock_guard lock(mutex);
  return std::exchange(of_kernels(), {});
}

}  // namespace simt
