// The mbarriers of a block. A phase completes once all its arrivals and expected bytes have been
// counted; a wait names a phase by its parity. If no thread can continue, the error lists which
// threads wait for which phase.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "simt/device/block.h"

namespace simt {

class Hopper;

class Mbarriers {
 public:
  explicit Mbarriers(Hopper& hopper) : hopper_(hopper) {}

  void begin() { all_.clear(), waits_.clear(), idle_ = 0; }

  // Each is the instruction of that name, executed by the running thread.
  void init(uint64_t* mbarrier, unsigned arrivals, Site);
  void inval(uint64_t* mbarrier, Site);
  void expect_tx(uint64_t* mbarrier, unsigned bytes, const char* what, Site);
  void arrive(uint64_t* mbarrier, const char* what, Site);
  void wait(uint64_t* mbarrier, unsigned parity, Site);      // until the phase has completed
  bool try_wait(uint64_t* mbarrier, unsigned parity, Site);  // false: no other thread can run

  // Makes the thread's inits so far visible to the async proxy.
  void fence(unsigned thread);

  // For TMA. check_use() fails if the mbarrier isn't visible to the async proxy. complete_tx()
  // counts bytes of the load that has this number in ProxyState.
  void check_use(uint64_t* mbarrier, const char* what, Site);
  void complete_tx(uint64_t* mbarrier, size_t bytes, unsigned load);

  bool time_out();  // no thread can run: lets those in try_wait continue
  void progress() { idle_ = 0; }
  std::string hang() const;
  // "over the mbarrier ...", if a valid mbarrier overlaps these bytes, otherwise empty.
  std::string in(uintptr_t begin, size_t bytes) const;

 private:
  struct Load {
    unsigned number;
    uint64_t phase;  // in which its bytes were counted
  };
  struct Mbarrier {
    uint64_t* at;
    unsigned arrivals, missing;
    int64_t bytes = 0;  // expected, less those received
    uint64_t expected = 0;
    uint64_t phase = 0;
    unsigned maker;
    bool fenced = false;
    Site site;
    std::vector<Load> loads{};  // that nobody has waited for
  };
  struct Wait {
    const Mbarrier* mbarrier;
    uint64_t phase;
    unsigned thread;
    Site site;
    bool tries, woken = false;  // woken: the phase has completed
    bool ready = false;         // the thread resumes
  };

  Mbarrier* find(const uint64_t*);
  Mbarrier& valid(uint64_t*, const char* what, Site);
  bool has_ended(Mbarrier&, unsigned parity);
  void complete_if_done(Mbarrier&);
  static void count_wait(const Mbarrier&, unsigned parity);
  bool park(Mbarrier&, bool tries, Site);
  std::string name(const Mbarrier&) const;
  std::string state(const Mbarrier&) const;

  Hopper& hopper_;
  std::deque<Mbarrier> all_;  // in the order of their inits
  std::vector<Wait> waits_;
  unsigned idle_ = 0;  // time-outs since anything else happened
};

}  // namespace simt
