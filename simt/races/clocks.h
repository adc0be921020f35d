// The order of a launch's accesses, as far as CUDA guarantees it: an access happens before another
// if the same thread makes it earlier, or if a wait, or a fence and a flag, lies between them:
//   - a barrier orders all threads of the block; __syncwarp(mask) and a named barrier order those
//     that take part. Shuffles, votes and mma order nothing;
//   - an atomic or volatile write (a flag) publishes what an earlier fence has made visible, to any
//     thread that reads the flag by an atomic or volatile access. Between blocks, the fence must be
//     __threadfence().
// Here blocks run one after another and their threads in turns, but this orders nothing.
//
// A full vector clock per thread would be too large, so only its differences from what all threads
// of the block know are stored. A thread's time advances at each event that other threads can
// observe, and exceeds all times of earlier blocks, so that a stamp alone identifies its block and
// launch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace simt {

using Stamp = uint32_t;  // a time of a thread; 0: before all
enum class Scope : uint8_t { block, device };

class Clocks {
 public:
  void begin_launch();
  void begin_block(unsigned threads);
  void end_block() { next_ = latest_ + 1; }

  Stamp now(unsigned thread) const { return now_[thread]; }
  Stamp launch_begin() const { return launch_begin_; }
  Stamp block_begin() const { return block_begin_; }
  // Accesses of this block before its last barrier have older stamps.
  Stamp barrier() const { return barrier_; }
  size_t block_of(Stamp) const;  // a number in the launch

  // Whether what `thread` of the stamp's block did at `stamp` happens before what `me` does now.
  bool is_before(Stamp stamp, unsigned thread, unsigned me) const {
    if (stamp < barrier_)
      return stamp >= block_begin_ || stamp < launch_begin_ || has_learnt(stamp, thread, me);
    if (thread == me) return true;
    return (crossed_ || thread / 32 == me / 32) && known_[size_t{me} * threads_ + thread] > stamp;
  }

  void wait_all();
  void wait(const std::vector<unsigned>& threads);
  void fence(unsigned thread, Scope);
  // An atomic or volatile access. `adds`: the write is part of an atomic operation, after which
  // earlier writes still publish what they did (a release sequence).
  void read_flag(unsigned thread, uintptr_t address, bool in_shared);
  void write_flag(unsigned thread, uintptr_t address, bool in_shared, bool adds);

 private:
  struct Log;
  // The entries that a log had when a thread read its flag.
  struct Learnt {
    const Log* log;
    size_t entries;
  };
  using Lessons = std::vector<Learnt>;
  // Everything that fences have made visible: of this block all before `before`, of each thread all
  // before row[thread], and what was learnt of other blocks.
  struct Fenced {
    Stamp before = 0;
    std::vector<Stamp> row{};
    Lessons learnt{};

    bool holds(Stamp stamp, unsigned thread) const {
      return stamp < before || (thread < row.size() && stamp < row[thread]);
    }
    void add(const Fenced&);
  };
  // All that writes to an address have published, oldest first.
  struct Entry {
    size_t block;
    Fenced fenced[2];  // by Scope
  };
  struct Log {
    std::vector<Entry> entries{};
  };

  static void learn(Lessons&, const Learnt&);
  bool has_learnt(Stamp, unsigned thread, unsigned me) const;
  static bool tells(const Learnt&, size_t block, Stamp, unsigned thread,
                    std::vector<const Log*>& asked);
  std::unordered_map<uintptr_t, Log*>& flags(bool in_shared) { return flags_[in_shared]; }

  unsigned threads_ = 0;
  Stamp next_ = 1, latest_ = 0, launch_begin_ = 1, block_begin_ = 1, barrier_ = 1;
  std::vector<Stamp> now_;
  // known_[me * threads_ + thread]: what `thread` did since the last barrier and before this stamp
  // happens before what `me` does now. Columns of other warps count only if crossed_. Entries from
  // before the barrier are smaller than any stamp after it and have no effect.
  std::vector<Stamp> known_;
  bool crossed_ = false;
  std::vector<Stamp> blocks_;  // when each block of the launch began

  std::vector<Fenced> fenced_[2];  // by Scope: by each thread since the last barrier
  Fenced fenced_by_all_[2];        // by any thread before it
  bool fenced_since_ = false, fenced_before_ = false;
  std::vector<Lessons> learnt_;  // by each thread since the last barrier
  Lessons learnt_by_all_;
  bool learnt_since_ = false;
  std::deque<Log> logs_;
  std::unordered_map<uintptr_t, Log*> flags_[2];  // in global and in shared memory
};

}  // namespace simt
