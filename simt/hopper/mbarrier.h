// The mbarriers of a block. A phase ends once all its arrivals and all bytes that were expected
// have come; waits name a phase by its parity. What can't end is an error that says who waits for
// what.
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
  void wait(uint64_t* mbarrier, unsigned parity, Site);      // until the phase has ended
  bool try_wait(uint64_t* mbarrier, unsigned parity, Site);  // or nobody else can run

  // The thread's inits so far are visible to the async proxy.
  void fence(unsigned thread);

  // For TMA: an error if the async proxy can't use it; `bytes` have come, by the load whose
  // number in ProxyState this is.
  void check_use(uint64_t* mbarrier, const char* what, Site);
  void complete_tx(uint64_t* mbarrier, size_t bytes, unsigned load);

  bool time_out();  // no thread can run: lets those in try_wait continue
  void progress() { idle_ = 0; }
  std::string hang() const;
  // "writes over the mbarrier ...", if one is valid in these bytes.
  std::string in(uintptr_t begin, size_t bytes) const;

 private:
  struct Load {
    unsigned number;
    uint64_t phase;  // that its bytes came in
  };
  struct Mbarrier {
    uint64_t* at;
    unsigned arrivals, missing;
    int64_t bytes = 0;  // expected, less those that have come
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
    bool tries, woken = false;  // woken: the phase has ended
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
  std::deque<Mbarrier> all_;  // in order of their first use
  std::vector<Wait> waits_;
  unsigned idle_ = 0;  // time-outs since anything else happened
};

}  // namespace simt
