// Finds races on the stand-in as compute-sanitizer's racecheck does on a GPU, and in global memory,
// too: two accesses to the same bytes by different threads, one of them a write, of which neither
// happens before the other (clocks.h). The kernel is compiled with the thread sanitizer's calls at
// each access (hooks.cpp); blocks run one after another, so that one shadow serves all blocks.
//
// Writes of the same value don't race with each other, nor do atomics. Volatile accesses to global
// memory don't race with each other or with atomics; in shared memory they count as ordinary ones,
// as code from before __syncwarp() relied on them. Of earlier blocks' reads of a word, two are
// kept.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "simt/races/block_work.h"
#include "simt/races/shadow.h"
#include "simt/races/unwritten.h"
#include "simt/races/watching.h"

namespace simt {

enum class Touch : uint8_t { read, write, atomic, copy };  // copy: an asynchronous one's write

struct Party {
  Touch touch;
  Place place;
  unsigned thread;
  size_t block;  // its number in the launch
};
struct Race {
  uintptr_t address;
  std::string variable, missing;
  Party first, second;
  bool has_first;  // false: a read of memory that nobody has written
};

class Races {
 public:
  static Races& instance();
  // Whether a kernel's own code runs on this host thread: checked before each note().
  static bool runs() { return me_ != nobody; }
  // Whether a launch is queued: host accesses to managed memory may race with it.
  static bool is_one_queued() { return queued_.load(std::memory_order_relaxed) != 0; }
  static Place place_of(const void* in_program);
  static Place place_of_site(const void* site);

  // ---- Events --------------------------------------------------------------------------------
  size_t issue();  // a launch is queued; returns its number
  void runs_next(size_t number) { number_ = number; }
  void note_host(Place, Touch, const void* address, size_t bytes);
  void begin_launch(const std::string& kernel, const std::array<unsigned, 3>& block_shape);
  void end_launch();  // prints what was found
  void begin_block(const std::array<unsigned, 3>& index, unsigned threads);
  void end_block();
  // Adds to the block's shared memory.
  void shared_memory(const void* begin, size_t bytes);
  void resume(unsigned thread) { settle(), me_ = stopped_ ? nobody : thread; }
  void pause() { settle(), me_ = nobody; }  // accesses from here on are not the kernel's

  void wait_all() {
    ++last_block_work.barriers;
    if (!stopped_) clocks_.wait_all();
  }
  void wait(const std::vector<unsigned>& threads) {
    if (!stopped_) clocks_.wait(threads);
  }
  void fence(Scope scope) { clocks_.fence(me_, scope); }
  // `is_flag`: an atomic load or store, or a volatile access.
  void note(Place, Touch, const void* address, size_t bytes, bool is_flag = false);
  void copy_begins(Place, void* to, size_t bytes);
  void copy_ends(void* to, size_t bytes);  // the running thread has waited for it

  // ---- Results -------------------------------------------------------------------------------
  size_t found() const { return reported_.size() + unnamed_; }
  size_t watched() const { return launches_; }
  // "my.cu:12: cudaMemcpy: ", from the addresses on the stack, innermost first; empty if not known.
  static std::string caller(const std::vector<void*>& stack);
  // A line for the program's end: the number of races, or that not all accesses were watched.
  std::string last_words() const;

  // Set by layers above.
  static inline std::string (*name_shared)(uintptr_t) = nullptr;
  static inline bool (*is_device_address)(const void*) = nullptr;
  static inline std::string (*name_device)(uintptr_t) = nullptr;

 private:
  enum class Where : uint8_t { shared, device, program, elsewhere };
  struct Access {
    Place place;
    Touch touch;
    bool is_strong;  // atomic or volatile
    Where where;
    uintptr_t begin;
    size_t bytes;
    bool in_shared() const { return where == Where::shared; }
  };

  Where where(uintptr_t) const;
  template <class Use>
  void each_cell(uintptr_t begin, size_t bytes, bool in_shared, Use use);
  void touch(Cell&, uintptr_t address, const Access&);
  void add_unwritten(uintptr_t address, const Access&);
  void check_reads(const Reads&, uintptr_t address, const Access&);
  void add_reads(Cell&, const Access&);
  Stamp oldest(bool in_shared) const {
    return in_shared ? clocks_.block_begin() : clocks_.launch_begin();
  }
  bool is_new(Place first, Place second) const {
    return !places_.contains(uint64_t{first} << 32 | second);
  }
  void add(Race, Where);
  void check_host(uintptr_t address, const Access&);
  Party me(const Access& a) const { return {a.touch, a.place, me_, blocks_.size() - 1}; }
  std::string missing(const Party& first, bool in_flight) const;
  std::string name(uintptr_t address, Where) const;
  std::string words(const Party&, const std::string& line) const;
  // A write over another thread's is a race unless it leaves the value unchanged, which is checked
  // before the next access.
  void settle() {
    if (over_bytes_) settle_now();
  }
  void settle_now();
  void expect_same(Race, const Access&);

  static constexpr unsigned nobody = ~0u, host = ~1u;  // instead of a thread
  static constinit inline thread_local unsigned me_ = nobody;

  Clocks clocks_;
  Shadow shadow_;
  struct Range {
    uintptr_t begin, end;
  };
  std::vector<Range> shared_;

  std::string kernel_;
  std::array<unsigned, 3> block_shape_{};
  std::vector<std::array<unsigned, 3>> blocks_;
  size_t launches_ = 0, accesses_ = 0;
  bool stopped_ = false;

  // The host's accesses to managed memory while launches were queued, per word: their place, and
  // the number of the last launch issued before them.
  struct HostTouches {
    size_t reads = 0, writes = 0;
    Place read = 0, write = 0;
  };
  static inline std::atomic<size_t> queued_ = 0;
  size_t issued_ = 0, number_ = 0;
  std::unordered_map<uintptr_t, HostTouches> host_;
  std::mutex host_mutex_;

  std::deque<Race> races_;               // of the launch
  std::unordered_set<uint64_t> places_;  // pairs that are or were in races_
  std::set<std::string> reported_;       // the same pairs as source lines
  std::unordered_set<Place> racing_;
  std::vector<Race> unwritten_;  // reads of what this block had not written
  size_t unnamed_ = 0, never_written_ = 0;

  uintptr_t over_ = 0;
  size_t over_bytes_ = 0;
  Where over_where_{};
  std::vector<unsigned char> before_;
  Race over_race_{};
};

}  // namespace simt
