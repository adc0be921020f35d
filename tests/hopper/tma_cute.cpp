// Compares the stand-in with CuTe: the address of each byte of a swizzled tile; TMA copies (with
// CuTe's map and coordinates, the stand-in must fill CuTe's layout of the tile with CuTe's view of
// the tensor); the operands of convolutions, set up by CUTLASS; and stmatrix, by CuTe's copy
// traits. All values differ, so that a misplaced one is detected.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/copy_traits_sm90_im2col.hpp>
#include <cute/atom/copy_traits_sm90_tma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/conv/collective/detail.hpp>
#include <cutlass/conv/convnd_problem_shape.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/hopper/tma_sides.h"

// CuTe's driver calls are forwarded to the stand-in's functions.
extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type,
                                           cuuint32_t rank, void* address, const cuuint64_t* sizes,
                                           const cuuint64_t* strides, const cuuint32_t* box,
                                           const cuuint32_t* steps, CUtensorMapInterleave i,
                                           CUtensorMapSwizzle s, CUtensorMapL2promotion p,
                                           CUtensorMapFloatOOBfill f) {
  std::vector<uint64_t> size(sizes, sizes + rank), stride(strides, strides + rank - 1);
  return CUresult(bv::compare::encode_tiled(map, type, rank, address, size.data(), stride.data(),
                                            box, steps, i, s, p, f));
}
extern "C" CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type,
                                            cuuint32_t rank, void* address, const cuuint64_t* sizes,
                                            const cuuint64_t* strides, const int* lower,
                                            const int* upper, cuuint32_t channels,
                                            cuuint32_t pixels, const cuuint32_t* steps,
                                            CUtensorMapInterleave i, CUtensorMapSwizzle s,
                                            CUtensorMapL2promotion p, CUtensorMapFloatOOBfill f) {
  std::vector<uint64_t> size(sizes, sizes + rank), stride(strides, strides + rank - 1);
  return CUresult(bv::compare::encode_im2col(map, type, rank, address, size.data(), stride.data(),
                                             lower, upper, channels, pixels, steps, i, s, p, f));
}
extern "C" CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "refused";
  return CUDA_SUCCESS;
}

namespace {

using namespace cute;
using Element = uint16_t;

struct Count {
  size_t compared = 0, different = 0;
  void check(bool is_same) { ++compared, different += !is_same; }
};
int report(const char* what, const Count& c) {
  std::printf("%s: %zu compared, %zu different\n", what, c.compared, c.different);
  return c.different != 0 || c.compared == 0;
}

std::mt19937 random_bits{1};
int draw(int least, int most) { return least + int(random_bits() % unsigned(most - least + 1)); }

constexpr size_t most = 65536;  // elements of a tensor, all different
struct alignas(1024) Memory {
  Element global[most], stored[most];
  alignas(1024) Element shared[most];
  Memory() {
    std::iota(global, global + most, Element{1});
    std::memset(stored, 0, sizeof stored);
    std::memset(shared, 0xFF, sizeof shared);
  }
};

// ---- Swizzles ----------------------------------------------------------------------------------
template <int bits>
void compare_swizzle(Count& count) {
  Swizzle<bits, 4, 3> swizzle;
  for (unsigned byte = 0; byte < 16384; ++byte)
    count.check(bv::compare::swizzled(byte, bits ? 16u << bits : 0) == unsigned(swizzle(byte)));
}

// ---- Tiles -------------------------------------------------------------------------------------
// The integers of a nested tuple, innermost first.
template <class Tuple>
std::vector<int> numbers(const Tuple& t) {
  std::vector<int> list;
  for_each(flatten(t), [&](auto x) { list.push_back(int(x)); });
  return list;
}

// Loads every tile of a tensor, including those at its edges, and stores it again.
template <class Tensor_, class SmemLayout, class Tiler>
void compare_tiles(Memory& m, const Tensor_& tensor, const SmemLayout& layout, const Tiler& tiler,
                   Count& count) {
  const auto load = make_tma_copy(SM90_TMA_LOAD{}, tensor, layout, tiler, Int<1>{});
  auto destination = make_tensor(make_gmem_ptr(m.stored), tensor.layout());
  const auto store = make_tma_copy(SM90_TMA_STORE{}, destination, layout, tiler, Int<1>{});
  const auto shape_ = shape(tensor);
  auto tiles = flat_divide(load.get_tma_tensor(shape_), tiler);
  auto elements = flat_divide(make_identity_tensor(shape_), tiler);
  auto in_shared = make_tensor(make_smem_ptr(m.shared), layout);
  auto slice = load.get_slice(Int<0>{});
  auto from = group_modes<1, rank(decltype(slice.partition_S(tiles)){})>(slice.partition_S(tiles));
  auto to =
      group_modes<1, rank(decltype(slice.partition_D(in_shared)){})>(slice.partition_D(in_shared));
  const int parts = int(size<0, 1>(to)), copies = int(size<1>(to));  // ... of a tile
  const int all = int(size<1>(from)) / copies;
  constexpr int R = rank(Tiler{});
  auto grouped = group_modes<1, R + 1>(group_modes<0, R>(elements));
  const auto each_copy = [&](int tile, const auto& copy) {
    for (int i = 0; i < copies; ++i)
      for (int part = 0; part < parts; ++part) {
        const auto begin = make_coord(make_coord(Int<0>{}, part), i);
        const std::vector<int> at =
            numbers(from(make_coord(make_coord(Int<0>{}, part), i + tile * copies)));
        Element* const p = m.shared + to.layout()(begin);
        copy(reinterpret_cast<unsigned char*>(p), at.data());
      }
  };
  for (int tile = 0; tile < all; ++tile) {
    std::memset(m.shared, 0xFF, sizeof m.shared);
    each_copy(tile, [&](unsigned char* p, const int* at) {
      bv::compare::load(p, load.get_tma_descriptor(), at, nullptr);
    });
    for (int i = 0; i < int(size<0>(grouped)); ++i) {
      const auto c = grouped(i, tile);
      const bool is_inside = elem_less(c, shape_);
      count.check(in_shared(i) == (is_inside ? tensor(c) : Element{0}));
    }
    each_copy(tile, [&](const unsigned char* p, const int* at) {
      bv::compare::store(store.get_tma_descriptor(), p, at);
    });
  }
  for (int i = 0; i < int(size(tensor)); ++i) count.check(destination(i) == tensor(i));
}

template <class Atom>
void compare_swizzled(Count& count) {
  for (int trial = 0; trial < 6; ++trial) {
    auto m = std::make_unique<Memory>();
    const int rows = draw(1, 150), columns = 8 * draw(1, 24);
    auto k_major = make_tensor(make_gmem_ptr(m->global),
                               make_layout(make_shape(rows, columns), make_stride(columns, _1{})));
    const auto tiler = Shape<_32, _64>{};
    compare_tiles(*m, k_major, tile_to_shape(Atom{}, tiler), tiler, count);
  }
}
template <class Atom>
void compare_swizzled_mn(Count& count) {
  for (int trial = 0; trial < 6; ++trial) {
    auto m = std::make_unique<Memory>();
    const int rows = 8 * draw(1, 24), columns = draw(1, 150);
    auto mn_major = make_tensor(make_gmem_ptr(m->global),
                                make_layout(make_shape(rows, columns), make_stride(_1{}, rows)));
    const auto tiler = Shape<_64, _32>{};
    compare_tiles(*m, mn_major, tile_to_shape(Atom{}, tiler), tiler, count);
  }
}

template <class Tiler, class... Sizes>
void compare_plain(Count& count, const Tiler& tiler, Sizes... sizes) {
  auto m = std::make_unique<Memory>();
  auto tensor = make_tensor(make_gmem_ptr(m->global), make_layout(make_shape(sizes...)));
  compare_tiles(*m, tensor, make_layout(tiler), tiler, count);
}

// ---- Pixels ------------------------------------------------------------------------------------
// A forward convolution of NHWC images: the tiles of its operand (pixels x channels and taps) as
// CUTLASS' mainloop loads them.
void compare_pixels(Count& count) {
  const int N = draw(1, 3), H = draw(3, 9), W = draw(3, 9), C = 64, R = draw(1, 3), S = draw(1, 3),
            pad = draw(0, 2), stride = draw(1, 2), dilation = draw(1, 2);
  if (N * H * W * C > int(most) || H + 2 * pad < dilation * (R - 1) + 1 ||
      W + 2 * pad < dilation * (S - 1) + 1)
    return;
  auto m = std::make_unique<Memory>();
  using Problem = cutlass::conv::ConvProblemShape<cutlass::conv::Operator::kFprop, 2>;
  const Problem problem(cutlass::conv::Mode::kCrossCorrelation, {N, H, W, C}, {64, R, S, C},
                        {pad, pad}, {pad, pad}, {stride, stride}, {dilation, dilation}, 1);
  namespace detail = cutlass::conv::collective::detail;
  const auto lower = detail::compute_lower_corner_whd(problem);
  const auto upper = detail::compute_upper_corner_whd(problem);
  const auto lower_srt = detail::compute_lower_srt(problem);
  cute::array<int32_t, 2> stride_srt{dilation, dilation};
  auto tensor = make_tensor(
      make_gmem_ptr(m->global),
      make_layout(make_shape(make_shape(W, H, N), C),
                  make_stride(make_stride(int64_t(C), int64_t(C) * W, int64_t(C) * W * H), _1{})));
  const auto tiler = Shape<_64, _64>{};
  const auto layout = tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, tiler);
  const auto tma = make_im2col_tma_copy(
      SM90_TMA_LOAD_IM2COL{}, tensor, layout, product_each(shape(layout)), Int<1>{}, shape(lower),
      shape(upper), cute::reverse(shape(problem.lower_padding)),
      cute::reverse(shape(problem.upper_padding)), cute::reverse(shape(problem.traversal_stride)),
      shape(lower_srt), shape(stride_srt));
  const int P = (H + 2 * pad - dilation * (R - 1) - 1) / stride + 1,
            Q = (W + 2 * pad - dilation * (S - 1) - 1) / stride + 1;
  const int M = N * P * Q, K = C * R * S;
  auto operand = tma.get_tma_tensor(make_shape(M, K));
  auto tiles = local_tile(operand, tiler, make_coord(_, _));  // (64, 64, m, k)
  auto slice = tma.get_slice(0);
  auto from = slice.partition_S(tiles);
  auto in_shared = make_tensor(make_smem_ptr(m->shared), layout);
  auto to = slice.partition_D(in_shared);
  for (int tm = 0; tm < (M + 63) / 64; ++tm)
    for (int tk = 0; tk < K / 64; ++tk) {
      std::memset(m->shared, 0xFF, sizeof m->shared);
      for (int i = 0; i < int(size<1>(to)); ++i)
        for (int j = 0; j < int(size<2>(to)); ++j) {
          const std::vector<int> c = numbers(from(_, i, j, tm, tk)(0));  // c, w, h, n, s, r
          const unsigned offsets[]{unsigned(c[4]), unsigned(c[5])};
          bv::compare::load(reinterpret_cast<unsigned char*>(raw_pointer_cast(to(_, i, j).data())),
                            tma.get_tma_descriptor(), c.data(), offsets);
        }
      for (int x = 0; x < 64; ++x)
        for (int k = 0; k < 64; ++k) {
          const int pixel = tm * 64 + x, n = pixel / (P * Q), p = pixel / Q % P, q = pixel % Q,
                    tap = tk * 64 / C, c = tk * 64 % C + k,
                    h = p * stride - pad + tap / S * dilation,
                    w = q * stride - pad + tap % S * dilation;
          const bool is_inside = n < N && h >= 0 && h < H && w >= 0 && w < W;
          const Element expected = is_inside ? m->global[((n * H + h) * W + w) * C + c] : 0;
          count.check(in_shared(x, k) == expected);
        }
    }
}

// ---- stmatrix ----------------------------------------------------------------------------------
template <class Operation>
void compare_stmatrix(bool transposed, Count& count) {
  using Traits = Copy_Traits<Operation>;
  const typename Traits::SrcLayout source;       // (lane, value) -> bit of what the lanes hold
  const typename Traits::DstLayout destination;  // (lane, value) -> bit of what they address
  uint32_t registers[32][4];
  Element shared[32][8], *rows[32];
  for (int lane = 0; lane < 32; ++lane) {
    rows[lane] = shared[lane];
    for (int m = 0; m < 4; ++m)
      registers[lane][m] = uint32_t(lane * 8 + m * 2) | uint32_t(lane * 8 + m * 2 + 1) << 16;
  }
  bv::compare::stmatrix(transposed, registers, rows);
  constexpr int elements = 8;  // of a lane
  std::vector<int> held(256, -1);
  const auto reference = [&](const auto& layout, int lane, int value) {
    return int(layout(lane, value * 16)) / 16;
  };
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < elements; ++v) held[reference(source, lane, v)] = lane * 8 + v;
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < elements; ++v)
      count.check(shared[lane][v] == held[reference(destination, lane, v)]);
}

}  // namespace

int main() {
  Count swizzles, tiles, swizzled, pixels, matrices;
  compare_swizzle<0>(swizzles);
  compare_swizzle<1>(swizzles);
  compare_swizzle<2>(swizzles);
  compare_swizzle<3>(swizzles);

  for (int trial = 0; trial < 10; ++trial) {
    compare_plain(tiles, Shape<_64>{}, 8 * draw(1, 40));
    compare_plain(tiles, Shape<_16, _8>{}, 8 * draw(1, 10), draw(1, 30));
    compare_plain(tiles, Shape<_24, _4, _2>{}, 8 * draw(1, 8), draw(1, 9), draw(1, 5));
    compare_plain(tiles, Shape<_8, _3, _2, _2>{}, 8 * draw(1, 4), draw(1, 7), draw(1, 5),
                  draw(1, 4));
    compare_plain(tiles, Shape<_8, _2, _3, _1, _2>{}, 8 * draw(1, 3), draw(1, 5), draw(1, 5),
                  draw(1, 3), draw(1, 3));
  }
  compare_swizzled<GMMA::Layout_K_INTER_Atom<Element>>(swizzled);
  compare_swizzled<GMMA::Layout_K_SW32_Atom<Element>>(swizzled);
  compare_swizzled<GMMA::Layout_K_SW64_Atom<Element>>(swizzled);
  compare_swizzled<GMMA::Layout_K_SW128_Atom<Element>>(swizzled);
  compare_swizzled_mn<GMMA::Layout_MN_SW32_Atom<Element>>(swizzled);
  compare_swizzled_mn<GMMA::Layout_MN_SW64_Atom<Element>>(swizzled);
  compare_swizzled_mn<GMMA::Layout_MN_SW128_Atom<Element>>(swizzled);
  for (int trial = 0; trial < 60; ++trial) compare_pixels(pixels);
  compare_stmatrix<SM90_U32x4_STSM_N>(false, matrices);
  compare_stmatrix<SM90_U16x8_STSM_T>(true, matrices);

  int failed = report("tma: bytes of swizzles", swizzles);
  failed |= report("tma: elements of tiles in 1 to 5 dimensions", tiles);
  failed |= report("tma: elements of wgmma's tiles, each swizzle", swizzled);
  failed |= report("tma: elements of convolutions' operands (im2col)", pixels);
  failed |= report("tma: elements by stmatrix", matrices);
  return failed;
}
