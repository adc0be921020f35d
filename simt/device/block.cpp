#include "simt/device/block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "simt/device/break.h"
#include "simt/device/control.h"

namespace simt {
namespace {

constexpr unsigned warp_size = 32;

bool is_same(Site a, Site b) {
  if (std::bit_cast<void*>(a) == std::bit_cast<void*>(b)) return true;  // nearly always
  return a.line() == b.line() && a.column() == b.column() &&
         !std::strcmp(a.file_name(), b.file_name());
}

struct Stopped {};  // thrown by leave()

void land(const Copy& copy) {
  if (copy.from_bytes) std::memcpy(copy.to, copy.from, copy.from_bytes);
  std::memset(static_cast<char*>(copy.to) + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
}

}  // namespace

// ---- Running a block ---------------------------------------------------------------------------

bool Block::run(const Launch& launch, uint3 index, unsigned random_seed) {
  begun_.fetch_add(1, std::memory_order_relaxed);
  prepare(launch, index, random_seed);
  current_ = this;
  beside_on_ = false;
  switch_to(pick());  // returns when all threads have returned or the block has failed
  current_ = nullptr;
  running_ = &host_;
  if constexpr (counting) Recorder::here().end();
  if constexpr (watching) Races::instance().end_block();
  if (error_.empty()) error_ = overrun();
  if (error_.empty()) return true;
  char where[max_description];
  describe(where, false);
  error_ = where + (": " + error_);
  return false;
}

void Block::prepare(const Launch& launch, uint3 index, unsigned random_seed) {
  const dim3 s = launch.block;
  const unsigned n = s.x * s.y * s.z;
  launch_ = &launch, index_ = index;
  host_.fiber.stack = {};
  error_.clear();
  break_in_ = thread_to_break_in(launch, index);
  blockIdx = index, blockDim = s, gridDim = launch.grid;
  if (s.x != shape_.x || s.y != shape_.y || s.z != shape_.z) {
    shape_ = s;
    threads_.resize(n);
    for (unsigned i = 0; i < n; ++i) {
      threads_[i].id = i;
      threads_[i].index = {i % s.x, i / s.x % s.y, i / (s.x * s.y)};
    }
    warps_.resize((n + warp_size - 1) / warp_size);
  }
  for (Thread& t : threads_) {
    t.fiber.top = nullptr;
    t.returned = false;
    t.gate = nullptr;
    t.site = {};
    t.copy_groups = 0;
    t.copies.clear();
  }
  all_ = {.size = n, .awaited = n};
  for (NumberedGate& gate : numbered_) {
    static_cast<Gate&>(gate) = {.size = n};
    gate.come.clear();
  }
  for (unsigned begin = 0; begin < n; begin += warp_size) {
    WarpGate& warp = warps_[begin / warp_size];
    const unsigned size = std::min(warp_size, n - begin);
    static_cast<Gate&>(warp) = {
        .begin = begin, .size = size, .mask = all_lanes >> (warp_size - size), .awaited = size};
    warp.votes = 0;
  }
  partial_.clear();
  votes_ = 0;
  stacks_.give_back_all();
  shared_.prepare(launch.shared_bytes);
  if constexpr (counting) {
    Recorder::here().begin(n, {index.x, index.y, index.z});
    Recorder::here().shared_memory(shared_.data(), shared_.bytes());
  }
  shared_name_ = nullptr;
  if constexpr (watching) {
    Races::name_shared = [](uintptr_t address) { return current_->name_shared(address); };
    Races::instance().begin_block({index.x, index.y, index.z}, n);
    Races::instance().shared_memory(shared_.data(), shared_.bytes());
  }
  for (SharedVariable& v : variables_) v.used = false;
  random_ = {random_seed};
  live_ = n;
  ready_.clear();
  open(all_);
}

// Runs the kernel in the running thread, then makes the next thread the running one. False: the
// thread has ended the block with an error; its stack is unwound.
inline bool Block::run_thread() {
  try {
    if (running_->id == break_in_) simt_break();
    launch_->body();
    running_->returned = true;
    --live_;
    if (beside_on_) beside_->returns(running_->id);
    become(pick());
  } catch (const Stopped&) {
    return false;
  }
  return true;
}

// Entry point of a fiber. When its thread returns, the next thread that has not begun takes over
// the stack: without waits, a block is a plain loop.
void Block::enter() {
  Block& b = *current_;
  Stack& host = b.host_.fiber.stack;
  b.running_->fiber.landed(host.low ? nullptr : &host);  // the first switch leaves the host's stack
  for (;;) {
    Fiber& last = b.running_->fiber;
    if (!b.run_thread()) {
      b.running_ = &b.host_;
      last.switch_to(b.host_.fiber, true);
    }
    Fiber& next = b.running_->fiber;
    if (next.top) {
      b.stacks_.give_back(last.stack);
      last.switch_to(next, true);
    }
    next.stack = last.stack;
  }
}

void Block::switch_to(Thread& to) {
  Thread& from = *running_;
  if (!to.fiber.top) to.fiber.begin_on(stacks_.take(), enter);
  become(to);
  from.fiber.switch_to(to.fiber, false);
}

// Ends the block: unwinds the running thread, which may own strings of the error message. The other
// threads' stacks are dropped without unwinding: a waiting thread owns nothing.
void Block::leave() { throw Stopped(); }

// ---- Waiting -----------------------------------------------------------------------------------

// True for the last thread to arrive: it does the work, if any, and opens the gate.
inline bool Block::come_to(Gate& gate, Site site) {
  Thread& me = *running_;
  me.gate = &gate;
  me.site = site;
  if (gate.arrived == 0) gate.earliest = &me;
  if (!is_same(site, gate.earliest->site)) {
    describe_two_sites(gate, site);
    leave();
  }
  return ++gate.arrived == gate.awaited;
}

// Counts the accesses made so far, if the gate is one of whole warps.
inline void Block::count_until(const Gate& gate) {
  if (!gate.whole) return;
  for (unsigned begin = gate.begin; begin < gate.begin + gate.size; begin += warp_size)
    Recorder::here().count_warp(begin);
}

// Makes the gate's threads ready; they resume next.
inline void Block::open(Gate& gate) {
  if constexpr (counting) count_until(gate);
  gate.arrived = 0;
  for (unsigned i = 0; i < gate.size; ++i) {
    const unsigned at = order == Order::reverse ? i : gate.size - 1 - i;
    if (gate.whole || gate.mask >> at & 1) ready_.push_back(&threads_[gate.begin + at]);
  }
}

inline Thread& Block::pick() {
  while (beside_on_ && ready_.empty() && beside_->advance()) {
  }
  if (ready_.empty()) {
    if (live_) describe_hang();
    return host_;
  }
  if (order == Order::random) std::swap(ready_[random_place()], ready_.back());
  Thread& next = *ready_.back();
  ready_.pop_back();
  return next;
}

// The index of the ready thread that runs next in random order. With Hopper's units on, ProxyState
// compares shared memory whenever another warp takes over, so a warp mostly runs until none of its
// lanes is ready; with a probability of 1/32 any thread of the block runs next.
inline size_t Block::random_place() {
  const size_t size = ready_.size();
  if (beside_on_ && random_() % 32) {
    const auto is_of_this_warp = [&](const Thread* t) {
      return size_t(t - threads_.data()) / warp_size == running_->id / warp_size;
    };
    const auto lanes = size_t(std::ranges::count_if(ready_, is_of_this_warp));
    size_t skip = lanes ? random_() % lanes : 0;
    for (size_t i = 0; lanes; ++i)
      if (is_of_this_warp(ready_[i]) && skip-- == 0) return i;
  }
  return random_() % size;
}

inline void Block::go_on() {
  meet();
  Thread& next = pick();
  if (&next != running_) switch_to(next);
}

void Block::park(Site site) {
  running_->gate = nullptr, running_->site = site;
  go_on();
}

void Block::wait_for_block(Site site) {
  if (come_to(all_, site)) {
    if constexpr (watching) Races::instance().wait_all();
    if constexpr (counting) Recorder::here().barrier();
    open(all_);
  }
  go_on();
}

// The count is valid until the next one is complete; by then all threads have read this one.
unsigned Block::count_in_block(bool yes, Site site) {
  votes_ += yes;
  if (come_to(all_, site)) {
    count_ = std::exchange(votes_, 0);
    if constexpr (watching) Races::instance().wait_all();
    if constexpr (counting) Recorder::here().barrier();
    open(all_);
  }
  go_on();
  return count_;
}

void Block::wait_at_barrier(unsigned id, unsigned threads, Site site) {
  if (id >= numbered_.size() || threads > threads_.size() || threads % warp_size) {
    describe_misuse("waits at barrier " + std::to_string(id) + " for " + std::to_string(threads) +
                        " threads, but there are 16 barriers, for whole warps,",
                    site);
    leave();
  }
  NumberedGate& gate = numbered_[id];
  if (!threads) threads = static_cast<unsigned>(threads_.size());
  if (gate.arrived && gate.awaited != threads) {
    describe_misuse("waits at barrier " + std::to_string(id) + " for " + std::to_string(threads) +
                        " threads, but another thread waits there for " +
                        std::to_string(gate.awaited) + ",",
                    site);
    leave();
  }
  gate.awaited = threads;
  running_->gate = &gate, running_->site = site;
  gate.come.push_back(running_);
  if (++gate.arrived == threads) {
    if constexpr (watching) {
      std::vector<unsigned> come;
      for (const Thread* t : gate.come) come.push_back(t->id);
      Races::instance().wait(come);
    }
    gate.arrived = 0;
    if (order != Order::reverse) std::reverse(gate.come.begin(), gate.come.end());
    ready_.insert(ready_.end(), gate.come.begin(), gate.come.end());
    gate.come.clear();
  }
  go_on();
}

// The gate of these lanes of the caller's warp, without lanes beyond the end of the block.
inline WarpGate& Block::gate_of(uint32_t mask, Site site) {
  WarpGate& warp = warps_[running_->id / warp_size];
  if (!(mask >> lane(warp) & 1)) {
    describe_wrong_mask(mask, site);
    leave();
  }
  mask &= warp.mask;
  if (mask == warp.mask) return warp;
  for (WarpGate& gate : partial_)
    if (gate.begin == warp.begin && gate.mask == mask) return gate;
  WarpGate& gate = partial_.emplace_back(warp);
  static_cast<Gate&>(gate) = {.begin = warp.begin,
                              .size = warp.size,
                              .mask = mask,
                              .whole = false,
                              .awaited = static_cast<unsigned>(std::popcount(mask))};
  gate.votes = 0;
  return gate;
}

void Block::wait_for_lanes(uint32_t mask, Site site) {
  WarpGate& gate = gate_of(mask, site);
  if (come_to(gate, site)) {
    order_lanes(gate);
    open(gate);
  }
  go_on();
}

void Block::order_lanes(const Gate& gate) {
  if constexpr (watching) {
    std::vector<unsigned> lanes;
    for (unsigned i = 0; i < gate.size; ++i)
      if (gate.whole || gate.mask >> i & 1) lanes.push_back(gate.begin + i);
    Races::instance().wait(lanes);
  }
}

// The ballot is valid until the next one, as in count_in_block.
uint32_t Block::ballot(uint32_t mask, bool yes, Site site) {
  WarpGate& gate = gate_of(mask, site);
  gate.votes |= uint32_t{yes} << lane(gate);
  if (come_to(gate, site)) {
    gate.ballot = std::exchange(gate.votes, 0);
    if constexpr (counting) Recorder::here().exchange(AccessKind::vote, gate.awaited);
    open(gate);
  }
  go_on();
  return gate.ballot;
}

uint64_t Block::shuffle(uint32_t mask, uint64_t bits, From from, unsigned argument, unsigned width,
                        Site site) {
  WarpGate& gate = gate_of(mask, site);
  argument %= warp_size;
  const unsigned me = lane(gate), first = me & ~(width - 1), last = first + width - 1;
  unsigned source = me;  // if the lane asked for is outside the group
  if (from == From::index) source = first + (argument & (width - 1));
  if (from == From::below && me >= first + argument) source = me - argument;
  if (from == From::above && me + argument <= last) source = me + argument;
  if (from == From::exclusive_or && (me ^ argument) <= last) source = me ^ argument;
  if (!(gate.mask >> source & 1)) {
    describe_misuse("reads lane " + std::to_string(source) + ", which is not in the mask", site);
    leave();
  }
  gate.bits[gate.side][me] = bits;
  const auto& brought = gate.bits[gate.side];
  if (come_to(gate, site)) {
    gate.side ^= 1;
    if constexpr (counting) Recorder::here().exchange(AccessKind::shuffle, gate.awaited);
    open(gate);
  }
  go_on();
  return brought[source];
}

void Block::wait_with_hand(void* hand, const void* work, WarpWork do_work, Site site) {
  WarpGate& gate = warps_[running_->id / warp_size];
  if (gate.size != warp_size) {
    describe_misuse("is in a warp of " + std::to_string(gate.size) + " threads, not 32,", site);
    leave();
  }
  gate.hands[lane(gate)] = hand;
  if (come_to(gate, site)) {
    if constexpr (counting) Recorder::here().pause();  // the lanes have noted their accesses
    if constexpr (watching) Races::instance().pause();
    do_work(work, gate.hands);
    if constexpr (counting) Recorder::here().resume(running_->id);
    if constexpr (watching) Races::instance().resume(running_->id);
    open(gate);
  }
  go_on();
}

// ---- Memory ------------------------------------------------------------------------------------

void* Block::shared_memory(size_t bytes, const char* name, Extents extents) {
  meet();
  if (name) shared_name_ = name, shared_extents_ = extents;
  if constexpr (counting) Recorder::here().lines.name_launch_memory(SharedName::of(name, extents));
  if (bytes <= shared_.bytes()) return shared_.data();
  error_ = "launched with " + std::to_string(shared_.bytes()) +
           " bytes of shared memory, but uses " + std::to_string(bytes);
  leave();
}

void* Block::shared_variable(const char* name, size_t bytes, Site site, Extents extents) {
  meet();
  constexpr size_t most = 48 * 1024;
  size_t together = bytes;
  SharedVariable* mine = nullptr;
  for (SharedVariable& v : variables_) {
    if (is_same(v.site, site))
      mine = &v;
    else if (v.used)
      together += v.memory.bytes();
  }
  if (mine && mine->used) return mine->memory.data();
  if (together > most) {
    describe_misuse("comes to " + std::to_string(together) +
                        " bytes of __shared__ variables, but a block can have " +
                        std::to_string(most) + ",",
                    site);
    leave();
  }
  if (!mine)
    mine = &variables_.emplace_back(SharedVariable{.name = name, .extents = extents, .site = site});
  mine->used = true;
  mine->memory.prepare(bytes);
  if constexpr (watching) Races::instance().shared_memory(mine->memory.data(), bytes);
  if constexpr (counting)
    Recorder::here().shared_memory(mine->memory.data(), bytes, SharedName::of(name, extents));
  return mine->memory.data();
}

void Block::check_aligned(const void* p, size_t bytes, const char* what, Site site) {
  const size_t past = reinterpret_cast<uintptr_t>(p) % bytes;
  if (past == 0) return;
  describe_misuse("calls " + std::string(what) + " " + std::to_string(past) +
                      " bytes past a multiple of " + std::to_string(bytes),
                  site);
  leave();
}

void Block::check_shared(const void* p, size_t bytes, const char* what, Site site) {
  check_aligned(p, bytes, what, site);
  check_shared_range(p, bytes, what, site);
}

void Block::check_shared_range(const void* p, size_t bytes, const char* what, Site site) {
  if (shared_.holds(p, bytes)) return;
  for (const SharedVariable& v : variables_)
    if (v.used && v.memory.holds(p, bytes)) return;
  describe_misuse("calls " + std::string(what) + " outside shared memory", site);
  leave();
}

void Block::copy_async(const Copy& copy) {
  if constexpr (asan)  // report a bad source where the copy is issued
    if (__asan_region_is_poisoned(copy.to, copy.bytes) ||
        __asan_region_is_poisoned(const_cast<void*>(copy.from), copy.from_bytes))
      return land(copy);
  const bool at_once = order == Order::reverse || (order == Order::random && random_() % 2);
  running_->copies.push_back(copy);
  running_->copies.back().group = running_->copy_groups;
  running_->copies.back().has_landed = at_once;
  if (at_once) land(copy);
}

void Block::copy_wait(unsigned pending) {
  auto& copies = running_->copies;
  auto copy = copies.begin();
  for (; copy != copies.end() && copy->group + pending < running_->copy_groups; ++copy) {
    if (!copy->has_landed) land(*copy);
    if constexpr (watching) Races::instance().copy_ends(copy->to, copy->bytes);
  }
  copies.erase(copies.begin(), copy);
}

void Block::each_shared(const std::function<void(unsigned char*, size_t)>& use) const {
  if (shared_.bytes()) use(shared_.data(), shared_.bytes());
  for (const SharedVariable& v : variables_)
    if (v.used) use(v.memory.data(), v.memory.bytes());
}

void Block::fail(const std::string& what, Site site) {
  describe_misuse(what, site);
  leave();
}

}  // namespace simt
