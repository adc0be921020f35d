// A CUDA block on one host thread: each CUDA thread is a fiber that runs until it waits (barrier,
// warp collective) or returns. Blocks run on all cores. No schedule depends on time, so neither
// results nor errors do: a launch that fails, fails in the same words every time.
//
// What a GPU leaves open, `order` decides: who goes on after a wait, and when an asynchronous copy
// lands. A warp runs as far ahead of the others as it may: a missing barrier changes the result.
#pragma once
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <algorithm>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/simt/control.h"
#include "kernels/simt/types.h"

inline namespace simt_cuda {
constinit inline thread_local uint3 threadIdx{}, blockIdx{};
constinit inline thread_local dim3 blockDim{}, gridDim{};
}  // namespace simt_cuda

namespace simt {
namespace ctx = boost::context::detail;
using Site = std::source_location;

#ifdef __SANITIZE_ADDRESS__
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif
constexpr size_t stack_bytes = (asan ? 256 : 64) * 1024, redzone = 4096;
constexpr uint64_t stack_end = 0xBADC0FFEE0DDF00D;

struct Random {  // a linear congruential generator; <random> alone would compile for 0.4 s
  uint64_t state;
  unsigned operator()() { return (state = state * 6364136223846793005u + 1) >> 33; }
};
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  unsigned group;
};
struct Thread {
  unsigned id = 0;
  uint3 index{};
  ctx::fcontext_t context = nullptr;  // where it goes on; null: not started yet
  const void* stack = nullptr;
  size_t stack_size = 0;
  void* fake_stack = nullptr;  // ASan's
  bool returned = false;
  Site site{};           // where it waits
  void* hand = nullptr;  // what it brings to a warp collective
  unsigned groups = 0;   // of asynchronous copies, committed
  std::vector<Copy> copies{};
};
struct Gate {  // a barrier of `size` threads from `begin` on
  unsigned begin, size, arrived = 0;
  Thread* earliest = nullptr;
};
struct Launch {
  std::string name;
  dim3 grid, block;
  size_t shared_bytes;
  std::function<void()> body;
};
struct alignas(1024) Chunk {
  unsigned char bytes[1024];
};               // TMA's strictest alignment
struct Worker {  // runs a block at a time, and keeps what is expensive to make
  const Launch* launch = nullptr;
  unsigned block_number = 0, live = 0;
  std::string error;
  Thread host;
  std::vector<Thread> threads;
  std::vector<Thread*> ready;
  Gate block{};
  std::vector<Gate> warps;
  Random random{};
  std::vector<std::unique_ptr<char[]>> stacks;
  std::vector<const void*> free_stacks;
  std::vector<Chunk> memory;
  unsigned char* shared = nullptr;  // in `memory`, between two redzones
};
constinit inline thread_local Worker* worker = nullptr;
constinit inline thread_local Thread* self = nullptr;

// ---- Fibers (cold, noinline: what is rare stays out of the fast path, 1.5 times as fast for it) -

inline void enter(ctx::transfer_t);
inline void become(Thread& t) { self = &t, threadIdx = t.index; }

[[gnu::cold]] inline void give_stack(Thread& t) {
  auto& free = worker->free_stacks;
  if (free.empty()) {
    auto& memory = worker->stacks.emplace_back(std::make_unique_for_overwrite<char[]>(stack_bytes));
    std::memcpy(memory.get(), &stack_end, sizeof stack_end);
    free.push_back(memory.get());
  }
  t.stack = free.back(), t.stack_size = stack_bytes;
  free.pop_back();
  if constexpr (asan) __asan_unpoison_memory_region(t.stack, stack_bytes);  // of who had it before
  t.context = ctx::make_fcontext((char*)t.stack + stack_bytes, stack_bytes, enter);
}
inline void arrived(ctx::transfer_t t) {
  Thread& from = *static_cast<Thread*>(t.data);
  from.context = t.fctx;
  if constexpr (asan)
    __sanitizer_finish_switch_fiber(self->fake_stack, &from.stack, &from.stack_size);
}
inline void switch_to(Thread& to) {
  Thread& from = *self;
  if (!to.context) give_stack(to);
  become(to);
  if constexpr (asan)
    __sanitizer_start_switch_fiber(from.returned ? nullptr : &from.fake_stack, to.stack,
                                   to.stack_size);
  arrived(ctx::jump_fcontext(to.context, &from));
}

inline bool same(Site a, Site b) {
  return a.line() == b.line() && a.column() == b.column() &&
         !std::strcmp(a.file_name(), b.file_name());
}
inline std::string str(unsigned n) { return std::to_string(n); }
inline std::string at(Site s) {
  return std::string(s.file_name()) + ":" + str(s.line()) + ":" + str(s.column());
}
inline std::string name(const char* what, uint3 i) {
  return std::string(what) + " (" + str(i.x) + "," + str(i.y) + "," + str(i.z) + ")";
}
inline std::string name(const Thread& t) { return name("thread", t.index); }

// Leaves the block where it stands; launch() throws worker->error. (Not a parameter: the temporary
// strings of its making would never be destroyed.)
[[noreturn]] inline void fail() {
  switch_to(worker->host);
  std::abort();
}
[[gnu::cold]] inline std::string hang() {  // all wait, nobody can release them
  const auto& all = worker->threads;
  const auto first = std::find_if(all.begin(), all.end(), [](auto& t) { return !t.returned; });
  const auto other = std::find_if(
      all.begin(), all.end(), [&](auto& t) { return t.returned || !same(t.site, first->site); });
  return name(*first) + " waits at " + at(first->site) + ", but " + name(*other) +
         (other->returned ? " has returned" : " at " + at(other->site));
}
inline Thread& pick() {
  auto& ready = worker->ready;
  if (ready.empty()) {
    if (worker->live) worker->error = hang();
    return worker->host;
  }
  if (order == Order::random) std::swap(ready[worker->random() % ready.size()], ready.back());
  Thread& next = *ready.back();
  ready.pop_back();
  return next;
}
inline void make_ready(unsigned begin, unsigned size) {  // on top: they run before all others
  for (unsigned i = 0; i < size; ++i)
    worker->ready.push_back(&worker->threads[begin + (order == Order::reverse ? i : size - 1 - i)]);
}
inline void enter(ctx::transfer_t from) {
  arrived(from);
  for (;;) {
    worker->launch->body();
    self->returned = true;
    --worker->live;
    if (std::memcmp(self->stack, &stack_end, sizeof stack_end)) std::abort();  // stack overflow
    Thread& next = pick();
    if (next.context) {
      worker->free_stacks.push_back(self->stack);
      switch_to(next);
    }
    next.stack = self->stack, next.stack_size = stack_bytes;  // a new thread takes over the stack:
    become(next);  // without waits, a block is a plain loop
  }
}

// ---- Waiting ----------------------------------------------------------------------------------

[[noreturn, gnu::cold]] inline void two_sites(Site site, const Thread& earliest) {
  worker->error = name(*self) + " waits at " + at(site) + ", but " + name(earliest) + " at " +
                  at(earliest.site);
  fail();
}
// All threads of a gate must come, to the same place in the source; the last does `work` for all.
template <class Work>
inline void arrive(Gate& gate, Site site, Work work) {
  self->site = site;
  if (gate.arrived == 0) gate.earliest = self;
  if (!same(site, gate.earliest->site)) two_sites(site, *gate.earliest);
  if (++gate.arrived == gate.size) {
    gate.arrived = 0;
    work();
    make_ready(gate.begin, gate.size);
  }
  Thread& next = pick();
  if (&next != self) switch_to(next);
}
// Every lane brings a Hand; `whole_warp(lanes)` reads and writes them all: lanes(0) ... lanes(31).
template <class Hand, class WholeWarp>
inline void collective(Hand& mine, Site site, WholeWarp whole_warp) {
  Gate& warp = worker->warps[self->id / 32];
  self->hand = &mine;
  arrive(warp, site, [&] [[gnu::noinline]] {
    if (warp.size != 32) {
      worker->error = "not a whole warp at " + at(site);
      fail();
    }
    whole_warp([first = &worker->threads[warp.begin]](int lane) -> Hand& {
      return *static_cast<Hand*>(first[lane].hand);
    });
  });
}

// ---- Asynchronous copies land at any time between issue and wait ------------------------------

inline void copy_async(void* to, const void* from, size_t bytes) {
  if constexpr (asan)  // a bad one is to be reported where it was issued
    if (__asan_region_is_poisoned(to, bytes) || __asan_region_is_poisoned((void*)from, bytes))
      std::memcpy(to, from, bytes);
  if (order == Order::reverse || (order == Order::random && worker->random() % 2))
    std::memcpy(to, from, bytes);
  else
    self->copies.push_back({to, from, bytes, self->groups});
}
inline void copy_wait(unsigned pending) {
  auto& copies = self->copies;
  auto c = copies.begin();
  for (; c != copies.end() && c->group + pending < self->groups; ++c)
    std::memcpy(c->to, c->from, c->bytes);
  copies.erase(copies.begin(), c);
}

// ---- Launch -----------------------------------------------------------------------------------

inline void check_limits(const Launch& l) {
  static constexpr struct {
    const char* arch;
    unsigned shared_kib;
  } chips[] = {{"sm_75", 64}, {"sm_80", 163}, {"sm_86", 99}, {"sm_89", 99}, {"sm_90", 227}};
  const char* set = std::getenv("SIMT_ARCH");
  const std::string arch = set ? set : "sm_80";
  const auto refuse = [&](std::string why) { throw std::runtime_error(l.name + ": " + why); };
  const auto chip =
      std::find_if(std::begin(chips), std::end(chips), [&](auto& c) { return arch == c.arch; });
  if (chip == std::end(chips)) refuse("SIMT_ARCH=" + arch + " is none of sm_75, 80, 86, 89, 90");
  if (l.shared_bytes > chip->shared_kib * 1024)
    refuse(str(l.shared_bytes) + " bytes of shared memory, but a block on " + arch + " has " +
           str(chip->shared_kib) + " KiB");
  const unsigned threads = l.block.x * l.block.y * l.block.z;
  if (threads < 1 || threads > 1024) refuse(str(threads) + " threads a block, not 1 to 1024");
}
inline void run_block(Worker& w, const Launch& l, unsigned number) {
  const unsigned n = l.block.x * l.block.y * l.block.z;
  worker = &w, self = &w.host;
  w.launch = &l, w.block_number = number, w.live = n;
  w.random = {(uint64_t{seed} << 32) + number};
  gridDim = l.grid, blockDim = l.block;
  blockIdx = {number % l.grid.x, number / l.grid.x % l.grid.y, number / (l.grid.x * l.grid.y)};
  w.threads.resize(n);
  for (unsigned i = 0; i < n; ++i) {
    Thread& t = w.threads[i];
    t.copies.clear();
    const uint3 index{i % l.block.x, i / l.block.x % l.block.y, i / (l.block.x * l.block.y)};
    t = {.id = i, .index = index, .copies = std::move(t.copies)};  // which keeps its memory
  }
  w.block = {0, n};
  w.warps.clear();
  for (unsigned i = 0; i < n; i += 32) w.warps.push_back({i, std::min(32u, n - i)});
  w.free_stacks.clear();
  for (const auto& stack : w.stacks) w.free_stacks.push_back(stack.get());

  const size_t bytes = l.shared_bytes, chunks = (2 * redzone + bytes) / sizeof(Chunk) + 1;
  if constexpr (asan)
    __asan_unpoison_memory_region(w.memory.data(), w.memory.size() * sizeof(Chunk));
  w.memory.resize(chunks);
  std::memset(w.memory.data(), 0xFF, chunks * sizeof(Chunk));  // NaN: a read before a write shows
  w.shared = w.memory[0].bytes + redzone;
  unsigned char* const redzones[] = {w.shared - redzone, w.shared + bytes};
  if constexpr (asan)
    for (auto* zone : redzones) __asan_poison_memory_region(zone, redzone);
  w.ready.clear();
  make_ready(0, n);
  switch_to(pick());  // comes back when all have returned or one has failed
  if constexpr (!asan)
    for (auto* zone : redzones)
      if (w.error.empty() && (zone[0] != 0xFF || std::memcmp(zone, zone + 1, redzone - 1)))
        w.error = "a write beyond shared memory (the line: -fsanitize=address)";
  if (!w.error.empty()) w.error = l.name + ": " + name("block", blockIdx) + ": " + w.error;
}
inline void run(const Launch& l) {
  check_limits(l);
  static std::mutex one_launch_at_a_time;  // it takes all cores anyway
  const std::lock_guard lock(one_launch_at_a_time);
  static std::vector<Worker> workers(std::max(1u, std::thread::hardware_concurrency()));
  const unsigned blocks = l.grid.x * l.grid.y * l.grid.z;
  std::atomic<unsigned> next = 0;
  for (Worker& w : workers) w.error.clear();  // of an earlier launch
  const auto work = [&](Worker& w) {
    for (unsigned i; w.error.empty() && (i = next++) < blocks;) run_block(w, l, i);
    if (!w.error.empty()) next = blocks;
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < std::min<size_t>(blocks, workers.size()); ++i)
    helpers.emplace_back([&, i] { work(workers[i]); });
  work(workers[0]);
  helpers.clear();                // joins
  const Worker* first = nullptr;  // the first block that fails has always run, whatever the timing
  for (const Worker& w : workers)
    if (!w.error.empty() && (!first || w.block_number < first->block_number)) first = &w;
  if (first) throw std::runtime_error(first->error);
}
}  // namespace simt

// ---- What kernels and launchers call ----------------------------------------------------------

inline namespace simt_cuda {
template <class T>
T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>, "nobody constructs shared memory");
  const size_t given = simt::worker->launch->shared_bytes;
  if (sizeof(T) > given) {
    simt::worker->error = "launched with " + simt::str(given) +
                          " bytes of shared memory, but uses " + simt::str(sizeof(T));
    simt::fail();
  }
  return *reinterpret_cast<T*>(simt::worker->shared);
}
inline void __syncthreads(simt::Site site = simt::Site::current()) {
  simt::arrive(simt::worker->block, site, [] {});
}
inline void __syncwarp(simt::Site site = simt::Site::current()) {
  simt::arrive(simt::worker->warps[simt::self->id / 32], site, [] {});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, simt::Site site = simt::Site::current()) {
  if (mask != ~0u) {
    simt::worker->error = "only whole warps can shuffle here, at " + simt::at(site);
    simt::fail();
  }
  struct Hand {
    T in, out;
    int bits;
  } mine{value, value, bits};
  simt::collective(mine, site, [](auto lanes) {
    for (int i = 0; i < 32; ++i) lanes(i).out = lanes((i ^ lanes(i).bits) & 31).in;
  });
  return mine.out;
}
}  // namespace simt_cuda
