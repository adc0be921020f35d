// Convolution in 16 bits on tensor cores, as an implicit matrix product (C and K are multiples of
// 8; one group, or groups as in conv_groups.cuh, with c and k in the same group):
//   forward         out[n, p, q, k] = sum over r, s, c of
//                       inp[n, p stride - padding + r, q stride - padding + s, c] *
//                       weight[k, r, s, c]
//                   moments of out's rounded values                                       both =
//   input gradient  dinp[n, h, w, c] = add + sum over k and all r, s with
//                       p stride - padding + r = h,  q stride - padding + s = w  of
//                       dout[n, p, q, k] weight[k, r, s, c]                                    =
// `add` is added in fp32 before rounding, and may be dinp. The image's im2col matrix
// (conv_geometry.cuh) is never written out.
//
// Grid:   (tiles of pixels x channels of out, phases, parts of gemm_k). If tiles are too few to
//         fill the GPU, blocks split gemm_k, and a tile's last block to finish adds up their sums
//         in order.
// Block:  4 warps multiply 32 of gemm_k per step; cp.async runs 3 steps ahead (conv_tiles.cuh). All
//         taps of 32 channels precede the next 32, since neighbouring taps share rows in L1. The
//         epilogue stages sums in shared memory, for coalesced 16-byte stores and to compute the
//         tile's moments without re-reading `out`.
// Warp:   its part of the tile's sums, in registers.
// Limited by mma (3x3) or by memory (1x1 with few channels). Resources: tests/kernels/resources.txt
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_groups.cuh"

namespace bv::BAREVISION_GPU {
namespace {

using namespace implicit_gemm;

constexpr int stages = 4;   // 3 being copied and one being multiplied
constexpr int step_k = 32;  // of gemm_k in a stage, all of one tap

// ---- Shared memory ------------------------------------------------------------------------------
template <int m, int n>
struct Stage {
  alignas(128) uint4 image[m * step_k / 8];  // [m, step_k]
  uint4 weight[n * step_k / 8];              // [n, step_k]; input gradient: [step_k, n]
};

template <int m, int n>
struct Shared {
  union {
    Stage<m, n> stage[stages];
    Results<m, n> results;  // once the last stage has been multiplied
  };
};

template <int m, int n, bool input_gradient>
__device__ Tile tile_of_block(const Product& p) {
  const int block = static_cast<int>(blockIdx.x), m_tile = p.by_n_tiles.divide(block);
  return {.phase = Phase::of_block<input_gradient>(p.geometry, static_cast<int>(blockIdx.y),
                                                   static_cast<int>(gridDim.y)),
          .pixel = m_tile * m,
          .n = (block - m_tile * p.n_tiles) * n};
}

// ---- Load ---------------------------------------------------------------------------------------
// Copies one stage after another: all taps of 32 channels of gemm_k, then of the next 32. Offsets
// are in chunks of 16 bytes.
template <int m, int n, bool input_gradient>
struct Loader {
  static constexpr int chunks = step_k / 8, weight_chunks = input_gradient ? n / 8 : chunks;
  using WeightRows = RowCopies<threads, weight_chunks>;
  static constexpr int weight_rows = (input_gradient ? step_k : n) / WeightRows::at_once;

  using Image = ImageRows<m, chunks>;

  Image image;
  const uint4* weight;
  int weight_offset, weight_step;  // the first row's; from one row to the next
  int weight_left;  // rows of the weight from the first one on; forward: of gemm_n, else of gemm_k
  bool n_in_bounds;
  int c = 0, i = 0, j = 0;  // the next step: chunk of gemm_k, tap of y, of x

  __device__ Loader(const Product& p, const Tile& t, int first_step)
      : image(p, t, 0), weight(static_cast<const uint4*>(p.weight)) {
    const Geometry& g = p.geometry;
    const Axis& x = t.phase.x;
    // chunk is WeightRows::chunk() in unsigned arithmetic, which saves two registers.
    const int row = WeightRows::row(), chunk = threadIdx.x % weight_chunks;
    if (input_gradient) {
      const int filter = g.R * g.S * (p.gemm_n / 8);
      weight_offset = row * filter + t.n / 8 + chunk;
      weight_step = WeightRows::at_once * filter;
      weight_left = p.gemm_k - row;
      n_in_bounds = t.n + chunk * 8 < p.gemm_n;
    } else {
      const int filter = g.R * g.S * (p.gemm_k / 8);
      weight_offset = (t.n + row) * filter + chunk;
      weight_step = WeightRows::at_once * filter;
      weight_left = p.gemm_n - t.n - row;
    }
    if (first_step > 0) {
      const int taps = t.phase.taps(), tap = first_step % taps;
      c = first_step / taps * chunks, i = tap / x.taps, j = tap % x.taps;
    }
  }

  __device__ void load(const Product& p, const Tile& t, Stage<m, n>& to) {
    const Geometry& g = p.geometry;
    const Axis &y = t.phase.y, &x = t.phase.x;
    const bool k_in_bounds = c + Image::Rows::chunk() < p.gemm_k / 8;
    image.load(p, i, j, c, k_in_bounds, to.image);

    const int tap = (y.filter + i * y.filter_step) * g.S + x.filter + j * x.filter_step;
    const uint4* from;
    if (input_gradient)
      from = weight + (tap + int64_t{c * 8} * (g.R * g.S)) * (p.gemm_n / 8);
    else
      from = weight + (int64_t{tap} * (p.gemm_k / 8) + c);
    from += weight_offset;
#pragma unroll
    for (int k = 0; k < weight_rows; ++k)
      cp_async_16(at_byte(to.weight, WeightRows::place(k)), from + k * weight_step,
                  input_gradient ? n_in_bounds && c * 8 + k * WeightRows::at_once < weight_left
                                 : k_in_bounds && k * WeightRows::at_once < weight_left);

    if (++j == x.taps) {
      j = 0;
      if (++i == y.taps) i = 0, c += chunks;
    }
  }
};

// ---- Multiply -----------------------------------------------------------------------------------
template <bool input_gradient, class T, int m, int n>
__device__ void multiply(Sums<T, m, n>& sums, const Stage<m, n>& from) {
  constexpr int chunks = step_k / 8, weight_chunks = input_gradient ? n / 8 : chunks;
  const int lane = threadIdx.x % warp_size;
  // Byte offsets of this lane's rows of the first 8x8 matrices. The weight's matrices are ordered
  // so that the two that an mma reads are in neighbouring registers.
  const int image = swizzled_byte<chunks>(sums.row() + lane % 16, lane / 16);
  const int weight =
      input_gradient
          ? swizzled_byte<weight_chunks>(lane % 16, sums.column() / 8 + lane / 16)
          : swizzled_byte<chunks>(sums.column() + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  sums.template multiply<step_k / 16>(
      [&](uint32_t(&a)[4], int k, int i) {
        ldmatrix_x4(a, at_byte(from.image, (image ^ k * 32) + i * 16 * chunks * 16));
      },
      [&](uint32_t(&b)[4], int k, int j) {
        if constexpr (input_gradient)
          ldmatrix_x4_trans(b,
                            at_byte(from.weight, (weight ^ j * 16) + k * 16 * weight_chunks * 16));
        else
          ldmatrix_x4(b, at_byte(from.weight, (weight ^ k * 32) + j * 8 * chunks * 16));
      });
}

// save() stores the sums of a part of gemm_k as [fragment][thread]; add() adds such sums.
template <class Sums>
__device__ void save(const Sums& sums, float4* to) {
#pragma unroll
  for (int i = 0; i < Sums::ms; ++i)
#pragma unroll
    for (int j = 0; j < Sums::ns; ++j) {
      const auto& x = sums.sum[i][j];
      to[(i * Sums::ns + j) * threads + threadIdx.x] = {x[0], x[1], x[2], x[3]};
    }
}
template <class Sums>
__device__ void add(Sums& sums, const float4* from) {
#pragma unroll
  for (int i = 0; i < Sums::ms; ++i)
#pragma unroll
    for (int j = 0; j < Sums::ns; ++j) {
      const float4 x = from[(i * Sums::ns + j) * threads + threadIdx.x];
      auto& sum = sums.sum[i][j];
      sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
    }
}

// ---- The kernels --------------------------------------------------------------------------------
// As many blocks per SM as registers allow: on Turing, adding up the parts of a split tile takes a
// few more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int small_tiles_per_sm = 4;
#else
constexpr int small_tiles_per_sm = 5;
#endif
template <int m, int n>
constexpr int blocks_per_sm = m* n >= 128 * 128  ? 2
                              : m* n >= 128 * 64 ? 3
                                                 : small_tiles_per_sm;

// A tile without taps has no work if `add` is out itself, unless batch norm's sums are wanted.
__device__ inline bool has_work(const Product& p, int steps) {
  return steps > 0 || p.add != p.out || p.parts.partial;
}

template <bool input_gradient, class T, int m, int n>
__device__ void finish(const Product& p, const Tile& t, const Sums<T, m, n>& sums,
                       Results<m, n>& s) {
  const Epilogue<T, m, n, input_gradient> epilogue{p, t, s};
  const bool plus = input_gradient && p.add;
  if (plus) {
    epilogue.load_add();
    __syncthreads();
  }
  epilogue.round(sums, plus);
  __syncthreads();
  if (input_gradient && p.parts.partial) return epilogue.store_and_sum();
  epilogue.store();
  if (!input_gradient && p.parts.partial) epilogue.moments();
}

// Splitting gemm_k pays only for small tiles.
constexpr int split_m = 64, split_n = 64;
__device__ inline float4* sums_of_tile(const Product& p, int part) {
  const auto tile = (int64_t{part} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  return p.sums + tile * (split_m * split_n / 4);
}

// Saves the block's sums. The last block of a tile to finish then adds the sums of gemm_k's parts
// in order and returns true; the other blocks return false.
template <class Sums>
__device__ bool add_parts(const Product& p, Sums& sums) {
  save(sums, sums_of_tile(p, blockIdx.z));
  const int parts = static_cast<int>(gridDim.z);
  if (!is_last(p.arrived + blockIdx.y * gridDim.x + blockIdx.x, parts)) return false;
  sums = {};
  for (int part = 0; part < parts; ++part) add(sums, sums_of_tile(p, part));
  return true;
}

// Block (tile, phase, part of gemm_k).
template <class T, int m, int n, bool input_gradient>
__global__ void __launch_bounds__(threads, (blocks_per_sm<m, n>)) conv_tile(Product p) {
  await_kernel_ahead();
  constexpr bool splits = m == split_m && n == split_n;
  auto& s = shared<Shared<m, n>>();
  const Tile t = tile_of_block<m, n, input_gradient>(p);
  int steps = t.phase.taps() * ceil_div(p.gemm_k, step_k);
  if (has_work(p, steps)) {
    int first = 0;
    if (splits && p.sums) {
      const int part = static_cast<int>(blockIdx.z), parts = static_cast<int>(gridDim.z);
      first = steps * part / parts;
      steps = steps * (part + 1) / parts - first;
    }
    Sums<T, m, n> sums;
    if (steps > 0) {
      Loader<m, n, input_gradient> loader(p, t, first);
      pipeline(
          s.stage, 0, steps, [&](int, Stage<m, n>& to) { loader.load(p, t, to); },
          [&](const Stage<m, n>& from) { multiply<input_gradient>(sums, from); });
      __syncthreads();
    }
    if constexpr (splits)
      if (p.sums && !add_parts(p, sums)) return;
    finish<input_gradient>(p, t, sums, s.results);
  }
}

// On Turing, shared memory holds one block per SM.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int groups_blocks = 1;
#else
constexpr int groups_blocks = 3;
#endif

// Block (tile, phase), of a convolution with groups.
template <class T, int width, int taps, bool input_gradient>
__global__ void __launch_bounds__(threads, groups_blocks) conv_groups_tile(Product p) {
  await_kernel_ahead();
  using Stage = groups::Stage<width, taps>;
  static_assert(sizeof(groups::Shared<width, taps>) <= 64 << 10);  // Turing's
  auto& s = shared<groups::Shared<width, taps>>();
  const Tile t = tile_of_block<groups::m, groups::n, input_gradient>(p);
  const int steps = t.phase.taps() / taps;
  if (!has_work(p, steps)) return;
  Sums<T, groups::m, groups::n> sums;
  if (steps > 0) {
    groups::Loader<width, taps> loader(p, t);
    const groups::Multiplier<T, width, taps, input_gradient> multiplier(p, t);
    loader.clear(s);
    pipeline(
        s.stage, 0, steps, [&](int, Stage& to) { loader.load(p, t, to); },
        [&](const Stage& from) { multiplier.multiply(sums, from, s); });
    __syncthreads();
  }
  finish<input_gradient>(p, t, sums, s.results);
}

// ---- Tile choice --------------------------------------------------------------------------------
struct TileSize {
  int m, n;
  double clocks;  // per element of the tile, relative to the best size: smaller tiles read more
                  // shared memory per product
};
constexpr TileSize tile_sizes[] = {
    {128, 128, 1}, {256, 64, 1.1}, {128, 64, 1.35}, {split_m, split_n, 1.8}};
constexpr TileSize groups_tile{groups::m, groups::n, 1};

struct Choice {
  TileSize size;
  int parts;     // of gemm_k
  size_t tiles;  // of all phases
};

// Calls f.template operator()<m, n>() with the size as constants.
template <class F>
void by_size(const TileSize& size, F f) {
  if (size.m == 256) return f.template operator()<256, 64>();
  if (size.n == 128) return f.template operator()<128, 128>();
  if (size.m == 128) return f.template operator()<128, 64>();
  f.template operator()<split_m, split_n>();
}

template <bool input_gradient>
Choice choose(const DeviceProps& props, const ConvShape& s) {
  const Geometry g = input_gradient ? Geometry::backward_input(s) : Geometry::forward(s);
  const int phases = input_gradient ? s.stride * s.stride : 1;
  const int gemm_k = input_gradient ? s.K : s.C, gemm_n = input_gradient ? s.C : s.K;
  const size_t sms = size_t(props.sms);
  const auto tiles_of = [&](const TileSize& size) {
    return size_t(ceil_div(g.pixels, size.m)) * size_t(ceil_div(gemm_n, size.n)) * size_t(phases);
  };
  if (s.groups > 1) return {groups_tile, 1, tiles_of(groups_tile)};
  Choice best{};
  double min_clocks = 0;
  for (const TileSize& size : tile_sizes) {
    bool fits = false;
    by_size(size, [&]<int m, int n> { fits = sizeof(Shared<m, n>) <= size_t(props.shared_bytes); });
    if (!fits) continue;
    const size_t tiles = tiles_of(size);
    // The busiest SM determines the time.
    const double clocks = double(ceil_div(tiles, sms)) * size.m * size.n * size.clocks;
    if (!best.tiles || clocks < min_clocks) best = {size, 1, tiles}, min_clocks = clocks;
  }
  // If half of the SMs or more would be idle and gemm_k has at least 32 steps, it is split so that
  // each SM gets up to two parts of tiles; parts have at least 8 steps, since shorter parts
  // aren't worth adding up.
  int taps = 0;  // of the phase with the most taps
  for (int phase = 0; phase < phases; ++phase)
    taps = std::max(taps, Phase::of_block<input_gradient>(g, phase, phases).taps());
  const int steps = taps * ceil_div(gemm_k, step_k);
  if (best.size.m * best.size.n == split_m * split_n && 2 * best.tiles <= sms && steps >= 32)
    best.parts = int(std::min(2 * sms / best.tiles, size_t(steps / 8)));
  return best;
}

// The workspace: two statistics per tile of pixels and per column, then the sums of gemm_k's
// parts.
template <bool input_gradient>
int pixel_tiles(const Choice& choice, const ConvShape& s) {
  const Geometry g = input_gradient ? Geometry::backward_input(s) : Geometry::forward(s);
  return ceil_div(g.pixels, choice.size.m) * (input_gradient ? s.stride * s.stride : 1);
}
template <bool input_gradient>
size_t parts_bytes(const Choice& choice, const ConvShape& s) {
  const auto columns = static_cast<size_t>(input_gradient ? s.C : s.K);
  const auto tiles = static_cast<size_t>(pixel_tiles<input_gradient>(choice, s));
  return round_up(sizeof(float) * 2 * tiles * columns, 256);
}
size_t sums_bytes(const Choice& choice) {
  if (choice.parts == 1) return 0;
  return choice.tiles * size_t(choice.parts) * split_m * split_n * sizeof(float);
}

// ---- The operations -----------------------------------------------------------------------------
// The arguments that depend only on direction, shape and tiles. sums: memory for the sums of
// gemm_k's parts, if several. The counters of the parts are the device's last, since row_parts()
// uses the first.
template <bool input_gradient>
Product product(const DeviceProps& props, const ConvShape& s, const Choice& choice, void* sums) {
  const int gemm_n = input_gradient ? s.C : s.K, n_tiles = ceil_div(gemm_n, choice.size.n);
  return {
      .geometry = input_gradient ? Geometry::backward_input(s) : Geometry::forward(s),
      .sums = choice.parts > 1 ? static_cast<float4*>(sums) : nullptr,
      .arrived = choice.parts > 1 ? props.arrived + DeviceProps::counters - choice.tiles : nullptr,
      .gemm_k = input_gradient ? s.K : s.C,
      .gemm_n = gemm_n,
      .n_tiles = n_tiles,
      .by_n_tiles = Divisor(n_tiles),
      .group = s.groups > 1 ? s.C / s.groups : 0};
}

template <bool input_gradient>
void launch_groups(const Product& p, dim3 grid, DType dtype, cudaStream_t stream) {
  const Geometry& g = p.geometry;
  const bool rows = g.S == groups::row_taps && g.stride == 1 && g.Y == g.H && g.X == g.W && g.W > 1;
  by_16_bits(dtype, [&]<class T> {
    const auto start = [&]<int width, int taps> {
      launch<conv_groups_tile<T, width, taps, input_gradient>>(
          grid, threads, sizeof(groups::Shared<width, taps>), stream, p);
    };
    const auto with_width = [&]<int width> {
      if (rows)
        start.template operator()<width, groups::row_taps>();
      else
        start.template operator()<width, 1>();
    };
    if (diagonal_width(p.group) == 16)
      with_width.template operator()<16>();
    else
      with_width.template operator()<32>();
  });
}

template <bool input_gradient>
void launch_product(const Product& p, const Choice& choice, DType dtype, cudaStream_t stream) {
  const auto& [size, parts, tiles] = choice;
  const unsigned phases = input_gradient ? unsigned(p.geometry.stride * p.geometry.stride) : 1;
  const dim3 grid(unsigned(tiles / phases), phases, unsigned(parts));
  if (p.group) return launch_groups<input_gradient>(p, grid, dtype, stream);
  by_16_bits(dtype, [&]<class T> {
    by_size(size, [&]<int m, int n> {
      launch<conv_tile<T, m, n, input_gradient>>(grid, threads, sizeof(Shared<m, n>), stream, p);
    });
  });
}

}  // namespace

// Limits: 32-bit indices of pixels and of 16-byte chunks, with room for the padding.
bool conv_implicit_gemm_takes(const ConvShape& s, DType dtype) {
  const auto below = [](double x, int bits) { return x < double(int64_t{1} << bits); };
  const auto chunks = [&](double rows, int columns, int channels) {
    const double around = 2 * max_taps + s.stride + s.padding;
    return ((rows + around) * columns + around) * channels / 8;
  };
  return dtype != DType::fp32 && (s.groups == 1 || has_diagonal_blocks(s)) && s.C % 8 == 0 &&
         s.K % 8 == 0 && s.R <= max_taps && s.S <= max_taps && s.stride < 256 &&
         below(double(s.N) * s.H * s.W, 30) && below(double(s.N) * s.P() * s.Q(), 30) &&
         below(chunks(double(s.N) * s.H, s.W, s.C), 31) &&
         below(chunks(double(s.N) * s.P(), s.Q(), s.K), 31) && below(s.weight_count() / 8, 28);
}

size_t conv_implicit_gemm_bytes(const DeviceProps& props, const ConvForward& op) {
  const Choice choice = choose<false>(props, op.shape);
  return parts_bytes<false>(choice, op.shape) + sums_bytes(choice);
}

void conv_implicit_gemm(const DeviceProps& props, const ConvForward& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Choice choice = choose<false>(props, s);
  auto* const workspace = static_cast<char*>(op.workspace);
  Product p = product<false>(props, s, choice, workspace + parts_bytes<false>(choice, s));
  p.out = op.out, p.image = op.inp, p.weight = op.weight;
  if (op.batch_stats) {
    p.moments = {.moments = op.batch_stats,
                 .rows_of_part = choice.size.m,
                 .rows = p.geometry.pixels,
                 .C = s.K};
    p.parts = row_parts(props, workspace, pixel_tiles<false>(choice, s), s.K, p.n_tiles);
  }
  launch_product<false>(p, choice, op.dtype, stream);
}

size_t conv_implicit_gemm_bytes(const DeviceProps& props, const ConvBackwardInput& op) {
  return sums_bytes(choose<true>(props, op.shape));
}

void conv_implicit_gemm(const DeviceProps& props, const ConvBackwardInput& op,
                        cudaStream_t stream) {
  const Choice choice = choose<true>(props, op.shape);
  Product p = product<true>(props, op.shape, choice, op.workspace);
  p.out = op.dinp, p.add = op.add, p.image = op.dout, p.weight = op.weight;
  launch_product<true>(p, choice, op.dtype, stream);
}

size_t conv_implicit_gemm_bytes(const DeviceProps& props, const ConvBackwardInputSums& op) {
  const Choice choice = choose<true>(props, op.shape);
  return parts_bytes<true>(choice, op.shape) + sums_bytes(choice);
}

void conv_implicit_gemm(const DeviceProps& props, const ConvBackwardInputSums& op,
                        cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Choice choice = choose<true>(props, s);
  auto* const workspace = static_cast<char*>(op.workspace);
  Product p = product<true>(props, s, choice, workspace + parts_bytes<true>(choice, s));
  p.out = op.dinp, p.add = op.add, p.image = op.dout, p.weight = op.weight;
  p.norm = {.inp = op.norm_inp,
            .relu_mask = op.norm_relu_mask,
            .rows = op.norm_sums().shape.rows,
            .mean = op.mean,
            .rstd = op.rstd,
            .weight = op.norm_weight,
            .bias = op.norm_bias,
            .relu = op.relu};
  p.norm_sums = {.sums = op.sums,
                 .dweight = op.dnorm_weight,
                 .dbias = op.dnorm_bias,
                 .C = s.C,
                 .accumulate = op.accumulate};
  p.parts = row_parts(props, workspace, pixel_tiles<true>(choice, s), s.C, p.n_tiles);
  launch_product<true>(p, choice, op.dtype, stream);
}

}  // namespace bv::BAREVISION_GPU
