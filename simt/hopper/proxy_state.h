// The state of each byte of a block's shared memory, for async_proxy.h: which thread wrote it by an
// ordinary store that the async proxy may not see yet, and which asynchronous reads and TMA writes
// of it are pending.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simt/device/block.h"
#include "simt/hopper/async_proxy.h"

namespace simt {

// Comparing all of 200 KiB at each switch of threads would take longer than the kernel's own
// work. So once a block has compared `most_exact_` bytes, a switch between lanes of a warp
// compares only hot chunks, those in which threads have stored before. A store elsewhere is found
// when another warp runs or the async proxy uses the bytes. If several lanes have run by then,
// its writer is "a thread of warp 3", and a fence by any lane of that warp counts for it. The
// chunk is hot from then on. After four turns of the warp's lanes without a store or a fence,
// these switches no longer compare hot chunks either: a store from then on is also attributed to
// the warp.
class ProxyState {
 public:
  explicit ProxyState(Block& block) : block_(block) {}

  void begin();  // at a block's first instruction that needs it

  // Attributes to this thread, which runs, the bytes that have changed since the last comparison.
  void note(unsigned thread);
  void note(Bytes, unsigned thread);  // in this range, hot or not
  void hands_over(unsigned thread, unsigned to);
  // wrote(): on behalf of this thread. absorb(): the bytes' writer needs no fence.
  void wrote(Bytes, unsigned thread, const char* who, Site);
  void absorb(Bytes);

  void fence(unsigned thread) { fenced_[thread] = ++clock_, fenced_unknown_ = is_active_ = true; }
  void read(Bytes, const char* who, Site) const;

  Hold hold(Bytes, const char* who, Site);
  void release(Hold);

  // comes(): TMA will write these bytes. has_come(): it has. is_seen(): a thread has waited for it.
  unsigned comes(Bytes, const char* who, Site);
  void has_come(unsigned number);
  void is_seen(unsigned number);
  // At the block's end: names a TMA write that nobody has waited for; empty if there is none.
  std::string unseen() const;

  // Set by the owner of objects in shared memory that threads must not write (mbarriers): describes
  // the object in these bytes, if any.
  std::string (*reserved)(const Block&, uintptr_t begin, size_t bytes) = nullptr;

 private:
  // A thread's number + 1; or `some_lane` | a warp's number.
  using Writer = uint16_t;
  static constexpr Writer nobody = 0, some_lane = 0x8000, unknown = 0xFFFF;
  struct Area {
    unsigned char* data;
    std::vector<unsigned char> copy;
    std::vector<Writer> writer;
    std::vector<uint32_t> time;
    std::vector<bool> is_hot;   // of each chunk: threads have stored there
    std::vector<unsigned> hot;  // these chunks
  };
  struct Use {  // of a range, by the async proxy
    unsigned number;
    uintptr_t begin, end;
    const char* who;
    unsigned thread;
    Site site;
    bool is_write, has_come;
  };

  void find_areas();
  void compare_all(unsigned thread, bool hands_over);
  void compare_hot(unsigned thread, bool hands_over);
  void compare(Area&, size_t chunk, unsigned thread, bool hands_over);
  void changed(Area&, size_t begin, size_t end, unsigned thread, bool hands_over);
  bool is_fenced(Writer, uint32_t time) const;
  void note_use(unsigned number);  // finds stores to its range before the use ends: an error
  static size_t same_store(const Area&, size_t begin, size_t end);
  // The first byte in the range whose writer has not executed a fence since, or 0.
  uintptr_t unfenced(Bytes, Writer*) const;
  const Use* overlapping(uintptr_t begin, uintptr_t end, bool is_write) const;
  std::string words(const Use&) const;
  std::string writer_words(Writer) const;
  std::string subject(Writer) const;
  void check_write(uintptr_t begin, uintptr_t end, Writer,
                   const std::function<std::string()>& where) const;

  Block& block_;
  std::vector<Area> areas_;
  std::vector<uint32_t> fenced_;  // when each thread has last executed fence.proxy.async
  bool fenced_unknown_ = false;
  uint32_t clock_ = 1;
  size_t compared_ = 0;     // bytes in this block
  size_t most_exact_ = 0;   // until then,
  bool exact_ = true;       // all is compared at each switch
  uint32_t full_at_ = 0;    // when all was compared last
  unsigned since_ = 0;      // the thread that has run since then
  bool several_ = false;    // other lanes of its warp have run since then, too
  uint32_t hot_at_ = 0;     // when the hot chunks were compared last
  bool skipped_ = false;    // lanes have run since then and were not compared
  unsigned turns_ = 0;      // of the warp's lanes, since it took over or a round began
  bool is_active_ = false;  // a lane has stored or fenced: hot chunks are compared at each turn
  std::vector<Use> uses_;
  unsigned numbers_ = 0;
};

}  // namespace simt
