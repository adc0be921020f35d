// TMA copies issued by a block's threads: loads, which complete on an mbarrier, and stores, which a
// thread commits in groups and waits for. They land as late or as early as they may (Delivery).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simt/device/block.h"
#include "simt/hopper/async_proxy.h"

namespace simt {

class Hopper;

class Tma {
 public:
  explicit Tma(Hopper& hopper) : hopper_(hopper) {}

  void begin();

  // `fill` writes all of `to` from global memory. `who` must be a literal.
  void load(Bytes to, std::function<void(unsigned char* to)> fill, uint64_t* mbarrier,
            const char* who, Site);
  // `drain` writes the bytes at `from` to global memory.
  void store(Bytes from, std::function<void(const unsigned char* from)> drain, const char* who,
             Site);
  void commit();
  // Waits until at most the running thread's last `pending` groups still read shared memory or,
  // unless `only_reads`, write global memory.
  void wait(unsigned pending, bool only_reads);

  bool completes_on(const uint64_t* mbarrier) const;
  bool land_one();  // false: no load is in flight
  void drift();     // at a switch of threads: if loads land at random, one may land
  void returns(unsigned thread);

 private:
  struct Load {
    Bytes to;
    std::function<void(unsigned char*)> fill;
    uint64_t* mbarrier;
    unsigned number;
    const char* who;
    Site site;
  };
  struct Store {
    Bytes from;
    std::function<void(const unsigned char*)> drain;
    std::vector<unsigned char> bytes;  // as they were read
    bool read = false, written = false;
    unsigned thread, group;
    Hold hold;
    const char* who;
    Site site;
  };
  enum class When { early, late, some_time };

  When draw();
  void land(size_t index);
  void read(Store&);
  void write(Store&);

  Hopper& hopper_;
  std::vector<Load> loads_;  // in flight, oldest first
  std::vector<Store> stores_;
  std::vector<unsigned> groups_;  // committed by each thread
};

}  // namespace simt
