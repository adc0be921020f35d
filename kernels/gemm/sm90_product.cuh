// The matrix product of Hopper's kernels (sm_90a): 16-bit operands, fp32 sums, with TMA, mbarriers
// and wgmma:
//   sums[m, n] = sum over k of a(m, k) b(n, k)
//
// Work:   items, which are tiles of tile_m x tile_n sums or, if there are too few tiles, parts of k
//         of a tile. There is one block per SM, which computes every gridDim.x-th item. Items that
//         run concurrently share rows of a and a part of k through L2; all of b, a layer's weights,
//         fits into L2.
// Block:  three warpgroups. In the first, the producer, one thread issues the TMA copies of 64 of k
//         of both operands into a ring of stages; the other warps may add up partial sums of the
//         previous product: this takes no extra time and saves a launch. The other two
//         warpgroups, the consumers, process the items
//         - in turn (CUTLASS's ping-pong): one stores its sums while the other multiplies. Without
//           this overlap, storing would take half of the time of ViT-Tiny's products, whose k of
//           192 is three stages.
//         - together (CUTLASS's cooperative kernels), half of an item's rows each: b is read from
//           L2 once for twice the rows, which pays where k is long.
// Stage:  two mbarriers: `full` completes a phase when the bytes have arrived, `empty` when the
//         warps that multiplied them are done. There are as many stages as fit, at most 8.
// Memory: tiles in rows of 128 bytes, which TMA swizzles as wgmma expects. A matrix that is
//         contiguous along k is copied as [tile rows, 64 of k]; one that is contiguous along its
//         rows as blocks of [64 of k, 64 rows], which wgmma transposes.
// Parameters: `A` and `B` copy a stage's tile; `Epilogue` processes and stores an item's sums.
//
// Limited by arithmetic and by L2 if k is long; by memory with ViT-Tiny's k of 192. 2 M N K flops.
// From memory, each operand is read about once, and out is written: 2 (M K + N K + M N) bytes. From
// L2, operands are read once per tile.
#pragma once
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU::sm90 {

constexpr int warpgroup = 128, consumers = 2, threads = (1 + consumers) * warpgroup;
constexpr int wgmma_m = 64, wgmma_k = 16;    // of one instruction
constexpr int depth = 64;                    // of k in a stage: rows of 128 bytes
constexpr int block_bytes = 64 * depth * 2;  // of 64 rows
constexpr int shared_bytes = 227 * 1024;     // of a block on sm_90
// 64K registers are 168 per thread at launch; the producer gives most of its own to the consumers.
constexpr int producer_registers = 24, consumer_registers = 240;

// ---- Operands ---------------------------------------------------------------------------------
// An operand's copy() copies a tile to `to`: `tile` rows from `row` on, and the 64 of k that begin
// at 64 * step. Its descriptor() locates, among these, the 16 of k that begin at 16 * part.
// KMajor is contiguous along k and stored as [rows, 64].
struct KMajor {
  static constexpr Major major = Major::k;
  __device__ static uint64_t descriptor(const char* tile, int part) {
    return wgmma_descriptor(tile + part * wgmma_k * 2, Swizzle::b128, 8 * 128);
  }
};
// RowMajor is contiguous along the rows and stored in blocks of [64 of k, 64 rows].
struct RowMajor {
  static constexpr Major major = Major::mn;
  __device__ static uint64_t descriptor(const char* tile, int part) {
    return wgmma_descriptor(tile + part * wgmma_k * 128, Swizzle::b128, 8 * 128, block_bytes);
  }
  // copy(to, row) copies 64 rows.
  template <int tile, class Copy>
  __device__ static void each_block(char* to, int row, Copy copy) {
    static_assert(tile % 64 == 0);
#pragma unroll
    for (int i = 0; i < tile / 64; ++i) copy(to + i * block_bytes, row + i * 64);
  }
};

struct AlongK : KMajor {
  CUtensorMap map;  // of a matrix [rows, K], in boxes of [tile, 64]

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    cp_async_bulk_tensor(to, map, full, {step * depth, row});
  }
};
struct AlongRows : RowMajor {
  CUtensorMap map;  // of a matrix [K, rows], in boxes of [64, 64]

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    each_block<tile>(to, row, [&](char* block, int first) {
      cp_async_bulk_tensor(block, map, full, {first, step * depth});
    });
  }
};

// ---- Work -------------------------------------------------------------------------------------
// How sums are divided into items; computed by the host. Parts of k contribute to the same sums, or
// each to its own sums if the epilogue has phases.
struct Division {
  static constexpr int max_phases = 4;
  int M;  // rows
  int tiles_m, tiles_n;
  int steps;                // of k: ceil(k / 64)
  int parts, part_steps;    // k's parts, and their steps; the last may have fewer
  int phase[max_phases]{};  // the end of each phase's steps

  __host__ __device__ int items() const { return tiles_m * tiles_n * parts; }
};
struct Item {
  int m, n;         // the tile's first row and column
  int part;         // of k
  int first, last;  // its steps: [first, last)
};

// ---- Sums -------------------------------------------------------------------------------------
// A consumer's sums in wgmma's layout. of[i] holds the sums of 64 rows. In columns 8 j ... 8 j + 7,
// a thread has (row, column), (row, column + 1) and the same columns of row + 8, from [4 j] on.
template <int tile_m, int tile_n>
struct Sums {
  static constexpr int blocks = tile_m / wgmma_m;
  float of[blocks][tile_n / 2];
  float a[blocks][4];  // sums over k of a's rows, the same in all columns; if sums_of_a

  __device__ static int row() { return threadIdx.x % warpgroup / 32 * 16 + threadIdx.x % 32 / 4; }
  __device__ static int column() { return threadIdx.x % 4 * 2; }
};

// ---- The kernel -------------------------------------------------------------------------------
enum class Consumers { in_turn, together };

// A consumer computes tile_m x tile_n sums.
template <class T, class A, class B, class Epilogue, int tile_m, int tile_n,
          Consumers as = Consumers::in_turn>
struct Product {
  static_assert(tile_n % 64 == 0, "boxes of 64");
  // A half without rows may have an item after it only where columns or phases change.
  static constexpr bool stays_in_step() {
    if constexpr (as == Consumers::in_turn || (Epilogue::same_columns && !Epilogue::phases))
      return true;
    else
      return Epilogue::template in_step<tile_m, tile_n>;
  }
  static_assert(stays_in_step(), "a consumer that leaves out a tile finds its buffers out of step");
  // A producer that also adds up partial sums needs more registers.
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool same_columns = Epilogue::same_columns;
  static constexpr bool together = as == Consumers::together;
  static constexpr int item_m = together ? consumers * tile_m : tile_m;
  static constexpr int warps_of_stage = (together ? consumers : 1) * warpgroup / warp_size;
  struct Arguments {
    A a;
    B b;
    Division division;
    Epilogue epilogue;
    ColumnSums beside{};  // of another product (C and C2 multiples of 4), or none
  };
  struct Stage {
    alignas(1024) char a[item_m * depth * 2];
    alignas(1024) char b[tile_n * depth * 2];
  };
  struct Beside {  // shared memory other than the stages and their barriers
    typename Epilogue::template Shared<tile_m> epilogue[consumers];
    alignas(1024) char ones[Epilogue::sums_of_a ? 8 * depth * sizeof(T) : 16];  // as rows of b
    uint64_t turn[consumers];  // mbarriers: a phase completes when this consumer may multiply
  };
  static constexpr int stages =
      std::min<int>(8, (shared_bytes - sizeof(Beside)) / (sizeof(Stage) + 2 * sizeof(uint64_t)));
  struct Shared : Beside {
    Stage stage[stages];
    uint64_t full[stages], empty[stages];  // mbarriers
  };
  static_assert(sizeof(Shared) <= shared_bytes);

  // The stage of the block's step-th step; until then its barriers complete step / stages phases.
  struct Place {
    int stage;
    uint32_t parity;
    __device__ explicit Place(int step) : stage(step % stages), parity(step / stages % 2) {}
  };

  __device__ static Item item(const Division& d, int i) {
    const int row = i / d.tiles_n, part = row / d.tiles_m;
    Item t{.m = row % d.tiles_m * item_m,
           .n = i % d.tiles_n * tile_n,
           .part = part,
           .first = part * d.part_steps,
           .last = min((part + 1) * d.part_steps, d.steps)};
    if constexpr (Epilogue::phases) t.first = part ? d.phase[part - 1] : 0, t.last = d.phase[part];
    return t;
  }

  __device__ static void run(const Arguments& arguments) {
    auto& s = shared<Shared>();
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        mbarrier_init(&s.full[i], 1);
        mbarrier_init(&s.empty[i], warps_of_stage);
      }
      for (int i = 0; i < consumers; ++i) {
        mbarrier_init(&s.turn[i], warpgroup / warp_size);
        s.epilogue[i].prepare();
      }
      fence_mbarrier_init();
    }
    if constexpr (Epilogue::sums_of_a) {
      for (int i = threadIdx.x; i < 8 * depth; i += threads)
        reinterpret_cast<T*>(s.ones)[i] = from_float<T>(1);
      fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x < warpgroup) {
      setmaxnreg_dec<producer_registers>();
      await_kernel_ahead();
      if (threadIdx.x == 0) produce(arguments, s);
      if (threadIdx.x >= warp_size) add_up(arguments.beside);
    } else {
      setmaxnreg_inc<consumer_registers>();
      await_kernel_ahead();
      consume(arguments, s);
    }
  }

 private:
  // All warps of the producer but the first add up partial sums, 128 columns at a time each.
  __device__ static void add_up(const ColumnSums& sums) {
    constexpr int width = 4, columns = width * warp_size, warps = warpgroup / warp_size - 1;
    const int64_t end = sums.C + sums.C2;
    const int warp = (static_cast<int>(threadIdx.x) / warp_size - 1) * gridDim.x + blockIdx.x;
    for (int64_t c = int64_t{warp} * columns + threadIdx.x % warp_size * width; c < end;
         c += int64_t{warps} * gridDim.x * columns)
      store_sums(sums, c, add_blocks<width>(sums, c, 0, 1));
  }

  __device__ static void produce(const Arguments& arguments, Shared& s) {
    int step = 0;
    for (int i = blockIdx.x; i < arguments.division.items(); i += gridDim.x) {
      const Item t = item(arguments.division, i);
      for (int k = t.first; k < t.last; ++k, ++step) {
        const Place at(step);
        Stage& stage = s.stage[at.stage];
        uint64_t* const full = &s.full[at.stage];
        mbarrier_wait_parity(&s.empty[at.stage], at.parity ^ 1);  // passes in the first round
        mbarrier_arrive_expect_tx(full, sizeof(Stage));
        arguments.a.template copy<item_m>(stage.a, t.m, k, full);
        arguments.b.template copy<tile_n>(stage.b, t.n, k, full);
      }
    }
  }

  __device__ static void consume(const Arguments& arguments, Shared& s) {
    const int consumer = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup, 0) - 1;
    typename Epilogue::template Carried<tile_n> carried{};
    int step = 0;
    for (int i = blockIdx.x, n = 0; i < arguments.division.items(); i += gridDim.x, ++n) {
      Item t = item(arguments.division, i);
      if constexpr (together) {
        t.m += consumer * tile_m;
        multiply_and_store(arguments, s, step, t, consumer, n, carried);
      } else if (n % consumers == consumer) {
        multiply_and_store(arguments, s, step, t, consumer, n / consumers, carried);
      }
      step += t.last - t.first;
    }
    arguments.epilogue.finish(carried, s.epilogue, consumer);
  }

  // Computes the turn-th of the consumer's items, or of its halves of items.
  template <class Carried>
  __device__ static void multiply_and_store(const Arguments& arguments, Shared& s, int step,
                                            const Item& t, int consumer, int turn,
                                            Carried& carried) {
    const Epilogue& epilogue = arguments.epilogue;
    const bool has_rows = t.m < arguments.division.M;
    if constexpr (requires { epilogue.begin(t, carried, s.epilogue[consumer], consumer, turn); })
      if (has_rows) epilogue.begin(t, carried, s.epilogue[consumer], consumer, turn);
    Sums<tile_m, tile_n> sums;
    // The first consumer's first wait passes at once.
    if constexpr (!together) mbarrier_wait_parity(&s.turn[consumer], (turn + 1 + consumer) % 2);
    const int row = together ? consumer * tile_m : 0;
    bool of_a = false;
    if constexpr (Epilogue::sums_of_a) of_a = epilogue.wants_sums_of_a(t);
    if (of_a)
      multiply<Epilogue::sums_of_a>(sums, s, step, t, row);
    else
      multiply<false>(sums, s, step, t, row);
    if (!together && threadIdx.x % warp_size == 0) mbarrier_arrive(&s.turn[1 - consumer]);
    if (Epilogue::sums_of_a)
      wgmma_wait_group<0>(sums.of, sums.a);
    else
      wgmma_wait_group<0>(sums.of);
    release(s, step + t.last - t.first - 1);
    if (has_rows) epilogue.store(sums, t, carried, s.epilogue[consumer], consumer, turn);
  }

  // Issues the products of an item's stages, with a's rows from `row` on. The products of the
  // last stage are still in flight on return.
  template <bool sums_of_a>
  __device__ static void multiply(Sums<tile_m, tile_n>& sums, Shared& s, int step, const Item& t,
                                  int row) {
    if constexpr (sums_of_a)
      wgmma_fence(sums.of, sums.a);
    else
      wgmma_fence(sums.of);
    for (int k = t.first; k < t.last; ++k, ++step) {
      const Place at(step);
      const Stage& stage = s.stage[at.stage];
      mbarrier_wait_parity(&s.full[at.stage], at.parity);
      wgmma_fence();  // else ptxas adds one that makes wgmmas wait for each other (C7520)
#pragma unroll
      for (int part = 0; part < depth / wgmma_k; ++part)
#pragma unroll
        for (int m = 0; m < sums.blocks; ++m) {
          const uint64_t a = A::descriptor(stage.a + (row / 64 + m) * block_bytes, part);
          const bool adds = k > t.first || part > 0;
          wgmma_mma_async<T, A::major, B::major>(sums.of[m], a, B::descriptor(stage.b, part), adds);
          if constexpr (sums_of_a)
            wgmma_mma_async<T, A::major, Major::k>(sums.a[m], a, AlongK::descriptor(s.ones, 0),
                                                   adds);
        }
      wgmma_commit_group();
      if (k == t.first) continue;
      wgmma_wait_group<1>();
      release(s, step - 1);
    }
  }

  // Signals that this warp no longer reads the stage.
  __device__ static void release(Shared& s, int step) {
    if (threadIdx.x % warp_size == 0) mbarrier_arrive(&s.empty[Place(step).stage]);
  }
};

template <class Product>
__global__ void __launch_bounds__(threads, 1)
    sm90_product(const __grid_constant__ typename Product::Arguments arguments) {
  Product::run(arguments);
}

}  // namespace bv::BAREVISION_GPU::sm90
