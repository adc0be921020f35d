// A CUDA block on one host thread: each CUDA thread is a fiber that runs until it waits or returns.
// Each warp runs as far ahead of the others as possible, so that a missing barrier changes the
// result. No schedule depends on time, so neither results nor errors do.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simt/counters/recorder.h"
#include "simt/device/device.h"
#include "simt/device/fiber.h"
#include "simt/device/launch.h"
#include "simt/device/shared_memory.h"
#include "simt/races/races.h"

namespace simt {

struct Gate;

// An asynchronous copy in flight.
struct Copy {
  void* to;
  const void* from;
  size_t bytes, from_bytes;
  unsigned group;
  bool has_landed = false;
};

struct Thread {
  unsigned id = 0;  // in the block
  uint3 index{};
  Fiber fiber;
  bool returned = false;
  const Gate* gate = nullptr;  // the gate at which it waits
  Site site{};                 // the line where it waits
  unsigned copy_groups = 0;    // committed
  std::vector<Copy> copies;    // oldest first
};

// A barrier for all threads of a block, or for lanes of a warp.
struct Gate {
  unsigned begin = 0, size = 0;  // the threads begin ... begin + size - 1
  uint32_t mask = 0;             // which lanes of a warp
  bool whole = true;             // all of these threads take part
  unsigned awaited = 0, arrived = 0;
  const Thread* earliest = nullptr;

  bool awaits(const Thread& t) const {
    return t.id - begin < size && (whole || mask >> (t.id - begin) & 1);
  }
};

// A numbered barrier (PTX's named barriers), at which any threads of the block wait for each other.
struct NumberedGate : Gate {
  std::vector<Thread*> come;
};

// Values that the lanes of a warp exchange. Double-buffered: a lane may reach the next shuffle
// before another has read its value of the current one.
struct WarpGate : Gate {
  unsigned side = 0;
  uint64_t bits[2][32];
  void* hands[32];
  uint32_t votes = 0, ballot = 0;
};

// Asynchronous units that work concurrently with a block's threads (simt/hopper), from the first
// instruction that needs them to the block's end or stop_beside(). An error ends the block.
class Beside {
 public:
  virtual ~Beside() = default;
  virtual void begin() = 0;                                   // the block uses it from here on
  virtual void hands_over(unsigned thread, unsigned to) = 0;  // `to` runs next
  virtual bool advance() = 0;                 // no thread can run; false: it can make none ready
  virtual void returns(unsigned thread) = 0;  // the thread has returned
  virtual std::string hang() = 0;             // why no thread can run; empty: for another reason
};

struct Random {  // a linear congruential generator: short and fast
  uint64_t state;
  unsigned operator()() { return (state = state * 6364136223846793005u + 1) >> 33; }
};

// A __shared__ variable, reset in each block that reaches its declaration.
struct SharedVariable {
  const char* name;
  Extents extents;
  Site site;
  bool used = false;  // in this block
  SharedMemory memory{};
};

// Runs blocks one after another and keeps resources that are expensive to create.
class Block {
 public:
  // Runs the launch's block with this index. False: it failed, and error() has the reason.
  bool run(const Launch&, uint3 index, unsigned random_seed);
  const std::string& error() const { return error_; }

  static Block* current() { return current_; }  // the calling host thread's, or null

  // "KERNEL: block (0,0,0): thread (0,0,0)" for the running thread; allocates nothing.
  static constexpr size_t max_description = 400;
  void describe(char (&text)[max_description], bool with_thread = true) const;
  // Counts blocks begun: while it stays the same, the block may be spinning (watch.h).
  uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }
  bool on_guard_page(const void* address) const;
  // "tile[3][0]", or "byte 12 of its shared memory"
  std::string name_shared(uintptr_t address) const;

  // Called by the running thread: see device.h.
  void wait_for_block(Site);
  unsigned count_in_block(bool yes, Site);
  void wait_at_barrier(unsigned id, unsigned threads, Site);
  void wait_for_lanes(uint32_t mask, Site);
  uint32_t ballot(uint32_t mask, bool yes, Site);
  uint64_t shuffle(uint32_t mask, uint64_t bits, From, unsigned argument, unsigned width, Site);
  void wait_with_hand(void* hand, const void* work, WarpWork, Site);
  void* shared_memory(size_t bytes, const char* name, Extents);
  void* shared_variable(const char* name, size_t bytes, Site, Extents);
  void check_aligned(const void* p, size_t bytes, const char* what, Site);
  void check_shared(const void* p, size_t bytes, const char* what, Site);  // aligned, too
  void check_shared_range(const void* p, size_t bytes, const char* what, Site);
  void copy_async(const Copy&);
  void copy_commit() { ++running_->copy_groups; }
  void copy_wait(unsigned pending);
  [[noreturn]] void fail(const std::string& what, Site);
  // Ends the block with an error that isn't the running thread's.
  [[noreturn]] void fail_with(const std::string& error) { error_ = error, leave(); }

  // For the asynchronous units.
  Beside* beside() { return beside_on_ ? beside_.get() : nullptr; }
  template <class T>
  T& start_beside() {
    if (!beside_) beside_ = std::make_unique<T>(*this);
    beside_on_ = true;
    beside_->begin();
    return static_cast<T&>(*beside_);
  }
  void stop_beside() { beside_on_ = false; }
  const Thread& running() const { return *running_; }
  const std::vector<Thread>& threads() const { return threads_; }
  const Launch& launch() const { return *launch_; }
  unsigned random() { return random_(); }
  void park(Site);  // the running thread waits until it is woken
  void wake(unsigned thread) { ready_.push_back(&threads_[thread]); }
  void each_shared(const std::function<void(unsigned char*, size_t bytes)>&) const;

 private:
  void prepare(const Launch&, uint3 index, unsigned random_seed);
  static void enter();
  bool run_thread();
  void become(Thread& t) {
    if (beside_on_) beside_->hands_over(running_->id, t.id);
    running_ = &t, threadIdx = t.index;
    if constexpr (counting) Recorder::here().resume(t.id);
    if constexpr (watching) Races::instance().resume(t.id);
  }
  void switch_to(Thread&);
  [[noreturn]] void leave();

  bool come_to(Gate&, Site);
  void open(Gate&);
  void go_on();
  void count_until(const Gate&);
  static void order_lanes(const Gate&);
  Thread& pick();
  size_t random_place();
  WarpGate& gate_of(uint32_t mask, Site);
  unsigned lane(const Gate& warp) const { return running_->id - warp.begin; }

  // Cold. describe_...() sets error_; overrun() returns its text.
  void describe_hang();
  void describe_two_sites(const Gate&, Site);
  std::string overrun() const;
  void describe_wrong_mask(uint32_t mask, Site);
  void describe_misuse(const std::string& what, Site);

  static constinit inline thread_local Block* current_ = nullptr;

  const Launch* launch_ = nullptr;
  uint3 index_{};
  std::string error_;
  std::atomic<uint64_t> begun_ = 0;
  unsigned break_in_ = 0;  // the thread that SIMT_BREAK names

  Thread host_;  // the caller of run()
  Thread* running_ = &host_;
  dim3 shape_{0, 0, 0};  // of the block that threads_ and warps_ were made for
  std::vector<Thread> threads_;
  unsigned live_ = 0;           // threads that have not returned
  std::vector<Thread*> ready_;  // the last one resumes next
  Gate all_;
  std::array<NumberedGate, 16> numbered_;
  unsigned votes_ = 0, count_ = 0;  // for count_in_block
  std::vector<WarpGate> warps_;
  std::deque<WarpGate> partial_;  // for masks that name only some lanes of a warp
  Stacks stacks_;
  SharedMemory shared_;
  const char* shared_name_ = nullptr;  // the kernel's name for shared_, if it has one
  Extents shared_extents_{};
  std::deque<SharedVariable> variables_;
  Random random_{};
  std::unique_ptr<Beside> beside_;
  bool beside_on_ = false;
};

std::string name(const Thread&);  // "thread (0,0,0)"
std::string at(Site);             // " at FILE:LINE:COLUMN"

}  // namespace simt
