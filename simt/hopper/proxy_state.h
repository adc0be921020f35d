// A block's knowledge of each byte of its shared memory, for async_proxy.h: who has written it by
// an ordinary store that the async proxy may not see yet, who may still read it, what TMA still
// writes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simt/device/block.h"
#include "simt/hopper/async_proxy.h"

namespace simt {

// Comparing all of 200 KiB at each switch of threads would take longer than what a kernel computes.
// So after the first `exact_bytes` of a block, lanes of a warp that take turns are told apart only
// where threads have stored before, in chunks; elsewhere what has changed is found when another
// warp runs, or the async proxy reads it: then it is "a thread of warp 3", and a fence by one of
// its lanes counts for all of them. From then on that chunk is compared each time, except at the
// turns of a warp's lanes that follow four without a store or a fence: what is stored then is the
// warp's, too.
class ProxyState {
 public:
  explicit ProxyState(Block& block) : block_(block) {}

  void begin();  // a block's first instruction of this kind

  // The bytes that have changed since the last call are this thread's, which runs.
  void note(unsigned thread);
  void note(Bytes, unsigned thread);  // in this range, at any price
  void hands_over(unsigned thread, unsigned to);
  // Written on behalf of this thread, or by nobody whom a fence concerns.
  void wrote(Bytes, unsigned thread, const char* who, Site);
  void absorb(Bytes);

  void fence(unsigned thread) { fenced_[thread] = ++clock_, fenced_unknown_ = is_active_ = true; }
  void read(Bytes, const char* who, Site) const;

  Hold hold(Bytes, const char* who, Site);
  void release(Hold);

  // TMA will write these bytes; it has; someone has waited for it.
  unsigned comes(Bytes, const char* who, Site);
  void has_come(unsigned number);
  void is_seen(unsigned number);
  // The block ends: what TMA has written and nobody has waited for, or an empty string.
  std::string unseen() const;

  // Set by whoever has objects in shared memory that threads must not write (mbarriers): describes
  // the one in these bytes, if any.
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
  void note_use(unsigned number);  // a store in it before it ends is an error
  static size_t same_store(const Area&, size_t begin, size_t end);
  // The first byte in the range that its writer has not fenced, or 0.
  uintptr_t unfenced(Bytes, Writer*) const;
  const Use* overlapping(uintptr_t begin, uintptr_t end, bool is_write) const;
  std::string words(const Use&) const;
  std::string writer_words(Writer) const;
  std::string subject(Writer) const;
  void check_write(uintptr_t begin, uintptr_t end, Writer,
                   const std::function<std::string()>& where) const;

  Block& block_;
  std::vector<Area> areas_;
  size_t areas_seen_ = 0;
  std::vector<uint32_t> fenced_;  // when each thread has last executed fence.proxy.async
  bool fenced_unknown_ = false;
  uint32_t clock_ = 1;
  size_t compared_ = 0;     // bytes in this block
  bool exact_ = true;       // all is compared at each switch
  uint32_t full_at_ = 0;    // when all was compared last
  unsigned since_ = 0;      // changes since then are this thread's, or that of
  bool several_ = false;    // ... several of its warp
  uint32_t hot_at_ = 0;     // when the hot chunks were compared last
  bool skipped_ = false;    // lanes have run since then and were not compared
  unsigned turns_ = 0;      // of its lanes, since their warp took over or a round began
  bool is_active_ = false;  // one of them has stored or fenced: all later ones are compared
  std::vector<Use> uses_;
  unsigned numbers_ = 0;
};

}  // namespace simt
