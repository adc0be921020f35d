// Hopper's wgmma, executed per warp as in PTX: each of a warpgroup's four warps executes an
// instruction on its own; only wgmma.wait_group waits until the other warps have committed, too.
//
// Between an instruction and the wait that completes it, hardware may read the operands and write
// the sums at any time. As simt::delivery specifies, the stand-in does so at once (`early`) or at
// the wait (`late`), until which the accumulators are signalling NaNs. Either way the operands are
// held (async_proxy.h) and the registers are checked at the wait. Accumulators receive their sums
// at the first wait that names them: after a wait that doesn't, a GPU's compiler may use older
// values.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simt/hopper/async_proxy.h"
#include "simt/hopper/wgmma_fragments.h"
#include "simt/hopper/wgmma_operands.h"

namespace simt {

class Hopper;

// ---- The instructions, called by every lane ----------------------------------------------------

struct WgmmaCall {
  WgmmaShape shape;
  uint64_t a_descriptor, b_descriptor;
  const uint32_t* a;  // four registers, or null: A is in shared memory
  float* d;           // shape.columns / 2 registers
  bool adds;          // scale-d: D += A B, otherwise D = A B
};

void wgmma_fence(const Registers*, unsigned count, Site);
void wgmma_mma_async(const WgmmaCall&, Site);
void wgmma_commit_group(Site);
// Waits until at most `pending` committed groups are in flight; then these accumulators are final.
void wgmma_wait_group(unsigned pending, const Registers*, unsigned count, Site);

// The address of a byte in the shared address space, as descriptors use it.
uint32_t shared_address(const void*, Site);

// ---- The wgmmas of a block ---------------------------------------------------------------------

class Wgmmas {
 public:
  explicit Wgmmas(Hopper& hopper) : hopper_(hopper) {}
  void begin();
  void returns(unsigned thread);
  std::string hang() const;

  // Called for a whole warp by its last lane to arrive.
  void fence(const WarpRegisters&, Site);
  void issue(const std::array<WgmmaCall, 32>&, Site);
  void commit(Site);
  bool wait(unsigned pending, const WarpRegisters&, Site);  // false: each lane has to park
  void park(unsigned pending, Site);

  uint32_t shared_address(const void*, Site);

 private:
  struct Part {  // a warp's
    Fragment* d = nullptr;
    const uint32_t* a_at[32]{};
    uint32_t a[32][4];
    bool is_done = false;
  };
  struct Operation {
    WgmmaCall call;
    Site site;
    unsigned issuer;  // the thread
    std::vector<Hold> reads{};
    Part part[4]{};
  };
  struct Warp {
    Fragments fragments;
    size_t issued = 0, committed = 0, waited = 0;  // numbers of operations
    size_t groups = 0;
  };
  struct Warpgroup {
    Warp warp[4];
    std::deque<Operation> operations;  // those that some warp has not waited for
    size_t first = 0;                  // the number of the first of them
    std::vector<size_t> ends;          // of each group: the number of operations up to its end
    std::vector<std::pair<unsigned, Site>> parked;
    Operation& operation(size_t number) { return operations[number - first]; }
    size_t groups() const;  // that all warps have committed
  };
  struct Area {
    const unsigned char* data;
    size_t bytes;
    uint32_t address;
  };

  Warpgroup& mine(unsigned& warp, const char* what, Site);
  Operation& agree(Warpgroup&, const WgmmaCall&, Site);
  void check_same(const std::array<WgmmaCall, 32>&, Site) const;
  void read_operands(Operation&, bool is_first, Site);
  const Area& area_of(const WgmmaOperand&, const WgmmaOperand::Ranges&, const char* which, Site);
  void compute(Operation&, unsigned first_warp, unsigned warps);
  void finish(Warpgroup&, size_t end);
  void check_a(const Operation&, unsigned warp, Site) const;
  void find_areas();
  bool lands_now() const;
  std::string words(const Operation&) const;

  Hopper& hopper_;
  std::vector<std::unique_ptr<Warpgroup>> groups_;
  std::vector<Area> areas_;
};

}  // namespace simt
