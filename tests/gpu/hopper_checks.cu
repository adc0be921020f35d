// Hopper's instructions, each in a kernel that does little else (tests/kernels/hopper_checks.h).
// Numbers are small integers, so that results are exact.
#include <algorithm>

#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/round.cuh"
#include "tests/kernels/hopper_checks.h"

namespace bv::BAREVISION_GPU {
namespace {

// ---- The host's side ----------------------------------------------------------------------------
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& of) : count_(of.size()) {
    check(cudaMalloc(&at_, count_ * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(at_, of.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { cudaFree(at_); }
  OnDevice(const OnDevice&) = delete;
  T* at() const { return at_; }
  std::vector<T> read() const {
    std::vector<T> x(count_);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaMemcpy(x.data(), at_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return x;
  }

 private:
  T* at_ = nullptr;
  size_t count_;
};

template <class T>
std::string compare(const std::vector<T>& got, const std::vector<T>& right) {
  size_t wrong = 0, first = 0;
  for (size_t i = right.size(); i-- > 0;)
    if (!(got[i] == right[i])) ++wrong, first = i;
  return wrong ? std::to_string(wrong) + " of " + std::to_string(right.size()) +
                     " are wrong; the first is [" + std::to_string(first) +
                     "]: " + std::to_string(got[first]) + ", not " + std::to_string(right[first])
               : "";
}

std::vector<float> numbers(size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = float(i + 1);
  return x;
}

CUtensorMap map_of(const float* data, unsigned width, unsigned height, unsigned box_width,
                   unsigned box_height, Swizzle swizzle = Swizzle::none) {
  return make_map(TiledTensor{.address = data,
                              .type = ElementType::f32,
                              .rank = 2,
                              .size = {width, height},
                              .stride = {width * sizeof(float)},
                              .box = {box_width, box_height},
                              .swizzle = swizzle})
      .map;
}

// ---- mbarriers ----------------------------------------------------------------------------------
constexpr int phases = 5;

struct Handed {
  uint64_t full, empty;
  int value;
};

// Warp 0 hands warp 1 a number a phase.
__global__ void hands_over(int* out) {
  auto& s = shared<Handed>();
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    mbarrier_init(&s.empty, 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int i = 0; i < phases; ++i)
    if (threadIdx.x == 0) {
      mbarrier_wait_parity(&s.empty, i % 2 ^ 1);  // passes at once in the first round
      s.value = 7 * i + 1;
      mbarrier_arrive(&s.full);
    } else if (threadIdx.x >= 32) {
      mbarrier_wait_parity(&s.full, i % 2);
      out[32 * i + threadIdx.x % 32] = s.value;
      mbarrier_arrive(&s.empty);
    }
}
std::string mbarriers() {
  const OnDevice<int> out(std::vector<int>(32 * phases));
  launch<hands_over>(1, 64, sizeof(Handed), nullptr, out.at());
  std::vector<int> right;
  for (int i = 0; i < phases; ++i) right.insert(right.end(), 32, 7 * i + 1);
  return compare(out.read(), right);
}

// ---- TMA ----------------------------------------------------------------------------------------
struct Box {
  alignas(1024) float at[8 * 32];
  uint64_t full;
};

__device__ void begin(Box& s, unsigned bytes) {
  if (threadIdx.x != 0) return;
  mbarrier_init(&s.full, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect_tx(&s.full, bytes);
}
__device__ void end(Box& s, float* out) {
  __syncthreads();
  mbarrier_wait_parity(&s.full, 0);
  for (int i = threadIdx.x; i < 8 * 32; i += 32) out[i] = s.at[i];
}

__global__ void loads_tile(const __grid_constant__ CUtensorMap map, int column, int row,
                           float* out) {
  auto& s = shared<Box>();
  begin(s, sizeof s.at);
  if (threadIdx.x == 0) cp_async_bulk_tensor(s.at, map, &s.full, {column, row});
  end(s, out);
}
// A box of 8 x 32 from (column, row) on of a matrix [20, 40]; what is outside is 0.
template <Swizzle swizzle>
std::string tile() {
  constexpr int W = 40, H = 20;
  const std::vector<float> x = numbers(W * H);
  const OnDevice<float> inp(x);
  for (const auto& [column, row] : {std::pair{4, 3}, {-8, -2}, {20, 15}}) {
    const OnDevice<float> out(numbers(8 * 32));
    launch<loads_tile>(1, 32, sizeof(Box), nullptr, map_of(inp.at(), W, H, 32, 8, swizzle), column,
                       row, out.at());
    std::vector<float> right(8 * 32);
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 32; ++j) {
        const int m = row + i, n = column + j;
        const int chunk = swizzle == Swizzle::b128 ? j / 4 ^ i : j / 4;
        right[size_t(i * 32 + chunk * 4 + j % 4)] =
            m < 0 || n < 0 || m >= H || n >= W ? 0 : x[size_t(m * W + n)];
      }
    if (const std::string wrong = compare(out.read(), right); !wrong.empty())
      return "from column " + std::to_string(column) + ", row " + std::to_string(row) + ": " +
             wrong;
  }
  return "";
}

__global__ void loads_pixels(const __grid_constant__ CUtensorMap map, uint16_t s_tap,
                             uint16_t r_tap, float* out) {
  auto& s = shared<Box>();
  begin(s, sizeof s.at);
  if (threadIdx.x == 0)
    cp_async_bulk_tensor_im2col(s.at, map, &s.full, {0, -1, 1, 0}, {s_tap, r_tap});
  end(s, out);
}
// 64 pixels of 4 channels of [2, 6, 5, 4] for a filter of 3 x 3 with padding 1, from row 2 on.
std::string im2col() {
  constexpr int N = 2, H = 6, W = 5, C = 4;
  const std::vector<float> x = numbers(N * H * W * C);
  const OnDevice<float> inp(x);
  const CUtensorMap map = make_map(Im2colTensor{.address = inp.at(),
                                                .type = ElementType::f32,
                                                .rank = 4,
                                                .size = {C, W, H, N},
                                                .stride = {C * 4, W * C * 4, H * W * C * 4},
                                                .lower = {-1, -1},
                                                .upper = {-1, -1},
                                                .channels = C,
                                                .pixels = 64})
                              .map;
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s) {
      const OnDevice<float> out(numbers(8 * 32));
      launch<loads_pixels>(1, 32, sizeof(Box), nullptr, map, uint16_t(s), uint16_t(r), out.at());
      std::vector<float> right(8 * 32);
      for (int i = 0; i < 64; ++i) {  // pixels follow along W, then H, then N
        const int from = 2 * W + i, n = from / (H * W), h = from / W % H - 1 + r,
                  w = from % W - 1 + s;
        for (int c = 0; c < C; ++c)
          right[size_t(i * C + c)] = n >= N || h < 0 || w < 0 || h >= H || w >= W
                                         ? 0
                                         : x[size_t(((n * H + h) * W + w) * C + c)];
      }
      if (const std::string wrong = compare(out.read(), right); !wrong.empty())
        return "filter tap " + std::to_string(r) + ", " + std::to_string(s) + ": " + wrong;
    }
  return "";
}

__global__ void stores_tile(const __grid_constant__ CUtensorMap map, int column, int row,
                            bool adds) {
  auto& s = shared<Box>();
  for (int i = threadIdx.x; i < 8 * 32; i += 32) s.at[i] = i + 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (adds)
    cp_reduce_async_bulk_tensor_add(map, s.at, {column, row});
  else
    cp_async_bulk_tensor_store(map, s.at, {column, row});
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group<0>();
}
template <bool adds>
std::string stores() {
  constexpr int W = 40, H = 20, column = 20, row = -3;
  std::vector<float> right = numbers(W * H);
  const OnDevice<float> out(right);
  launch<stores_tile>(1, 32, sizeof(Box), nullptr, map_of(out.at(), W, H, 32, 8), column, row,
                      adds);
  for (int i = 3; i < 8; ++i)
    for (int j = 0; j < 20; ++j) {
      float& x = right[size_t((row + i) * W + column + j)];
      x = (adds ? x : 0) + float(i * 32 + j + 1);
    }
  return compare(out.read(), right);
}

__global__ void copies_bytes(const float* inp, float* out) {
  auto& s = shared<Box>();
  begin(s, sizeof s.at);
  if (threadIdx.x == 0) cp_async_bulk(s.at, inp, sizeof s.at, &s.full);
  __syncthreads();
  mbarrier_wait_parity(&s.full, 0);
  if (threadIdx.x != 0) return;
  cp_async_bulk_store(out, s.at, sizeof s.at);
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group<0>();
}
std::string bulk_copies() {
  const OnDevice<float> inp(numbers(8 * 32)), out(std::vector<float>(8 * 32));
  launch<copies_bytes>(1, 32, sizeof(Box), nullptr, inp.at(), out.at());
  return compare(out.read(), numbers(8 * 32));
}

// ---- stmatrix -----------------------------------------------------------------------------------
struct Matrices {
  alignas(16) uint16_t at[4][8][8];
};

template <int matrices, bool transposed>
__global__ void stores_matrices(int* out) {
  auto& s = shared<Matrices>();
  const unsigned lane = threadIdx.x;
  uint32_t r[matrices];
  for (unsigned m = 0; m < matrices; ++m) {
    const unsigned pair = 64 * m + lane * 2;  // row lane / 4, columns lane % 4 * 2 and the next
    r[m] = pair | (pair + 1) << 16;
  }
  void* const row = s.at[lane / 8 % matrices][lane % 8];
  if constexpr (transposed)
    stmatrix_x4_trans(row, r);
  else if constexpr (matrices == 1)
    stmatrix_x1(row, r);
  else if constexpr (matrices == 2)
    stmatrix_x2(row, r);
  else
    stmatrix_x4(row, r);
  __syncthreads();
  for (int i = lane; i < 64 * matrices; i += 32) out[i] = s.at[i / 64][i / 8 % 8][i % 8];
}
template <int matrices, bool transposed>
std::string stmatrix() {
  const OnDevice<int> out(std::vector<int>(64 * matrices));
  launch<stores_matrices<matrices, transposed>>(1, 32, sizeof(Matrices), nullptr, out.at());
  std::vector<int> right;
  for (int i = 0; i < 64 * matrices; ++i)
    right.push_back(transposed ? i / 64 * 64 + i % 8 * 8 + i / 8 % 8 : i);
  return compare(out.read(), right);
}

// ---- Threads ------------------------------------------------------------------------------------
struct Count {
  int elected[12], sum;
};

__global__ void __launch_bounds__(384, 1) moves_registers(int* out) {
  auto& s = shared<Count>();
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x < 128)
    setmaxnreg_dec<24>();
  else
    setmaxnreg_inc<240>();
  if (threadIdx.x % 32 == 0) s.elected[warp] = 0;
  __syncwarp();
  if (elect_sync()) s.elected[warp] += 1;
  if (threadIdx.x >= 128) {
    bar_sync(1, 256);
    if (threadIdx.x == 128) {
      s.sum = 0;
      for (int w = 4; w < 12; ++w) s.sum += s.elected[w];
    }
    bar_sync(1, 256);
    out[threadIdx.x - 128] = s.sum;
  }
}
std::string registers_and_barriers() {
  const OnDevice<int> out(std::vector<int>(256));
  launch<moves_registers>(1, 384, sizeof(Count), nullptr, out.at());
  return compare(out.read(), std::vector<int>(256, 8));
}

// ---- wgmma --------------------------------------------------------------------------------------
constexpr int depth = 64;
template <int columns>
struct Operands {
  alignas(1024) uint16_t a[64 * depth];
  alignas(1024) uint16_t b[columns * depth];
};

// Offset of an element of a tile [size, depth] in rows of 128 bytes with their swizzle.
__device__ inline int place(bool is_mn_major, int mn, int k) {
  const int along = is_mn_major ? mn : k, across = is_mn_major ? k : mn;
  const int at = along / 64 * depth * 64 + across * 64 + along % 64;
  return at ^ (across % 8) * 8;
}
__device__ inline int value(int i, int k) { return (i * 7 + k * 5) % 9 - 4; }

template <class T, int columns, Major a_major, Major b_major, bool from_registers>
__global__ void __launch_bounds__(128) multiplies(float* out) {
  auto& s = shared<Operands<columns>>();
  const auto bits = [](int x) {
    const T rounded = from_float<T>(x);
    uint16_t b;
    memcpy(&b, &rounded, 2);
    return b;
  };
  for (int i = threadIdx.x; i < 64 * depth; i += 128)
    s.a[place(a_major == Major::mn, i / depth, i % depth)] = bits(value(i / depth, i % depth));
  for (int i = threadIdx.x; i < columns * depth; i += 128)
    s.b[place(b_major == Major::mn, i / depth, i % depth)] = bits(value(i / depth + 3, i % depth));
  fence_proxy_async();
  __syncthreads();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
  uint32_t of_a[depth / 16][4];
#pragma unroll
  for (int k = 0; k < depth / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int m = row + i % 2 * 8, first = 16 * k + pair + i / 2 * 8;
      of_a[k][i] = bits(value(m, first)) | uint32_t{bits(value(m, first + 1))} << 16;
    }
  const uint64_t a = wgmma_descriptor(s.a, Swizzle::b128, 1024, depth * 128);
  const uint64_t b = wgmma_descriptor(s.b, Swizzle::b128, 1024, depth * 128);
  constexpr uint32_t a_step = a_major == Major::k ? 32 : 2048;
  constexpr uint32_t b_step = b_major == Major::k ? 32 : 2048;
  float d[columns / 2];
  if constexpr (from_registers)
    wgmma_fence(d, of_a);
  else
    wgmma_fence(d);
#pragma unroll
  for (uint32_t k = 0; k < depth / 16; ++k)
    if constexpr (from_registers)
      wgmma_mma_async<T, b_major>(d, of_a[k], wgmma_advance(b, k * b_step), k > 0);
    else
      wgmma_mma_async<T, a_major, b_major>(d, wgmma_advance(a, k * a_step),
                                           wgmma_advance(b, k * b_step), k > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
#pragma unroll
  for (int i = 0; i < columns / 2; ++i)
    out[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + pair + i % 2] = d[i];
}
template <class T, int columns, Major a_major = Major::k, Major b_major = Major::k,
          bool from_registers = false>
std::string wgmma() {
  const OnDevice<float> out(std::vector<float>(64 * columns));
  launch<multiplies<T, columns, a_major, b_major, from_registers>>(
      1, 128, sizeof(Operands<columns>), nullptr, out.at());
  const auto value = [](int i, int k) { return (i * 7 + k * 5) % 9 - 4; };
  std::vector<float> right(64 * columns);
  for (int i = 0; i < 64 * columns; ++i)
    for (int k = 0; k < depth; ++k)
      right[size_t(i)] += float(value(i / columns, k) * value(i % columns + 3, k));
  return compare(out.read(), right);
}

// ---- Dependent launches -------------------------------------------------------------------------
__global__ void adds_one(float* x, int count) {
  await_kernel_ahead();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    x[i] += 1;
}
std::string dependent_launches() {
  constexpr int count = 1 << 16, launches = 20;
  const OnDevice<float> x(std::vector<float>(count, 1.f));
  for (int i = 0; i < launches; ++i) launch_dependent<adds_one>(8, 128, 0, nullptr, x.at(), count);
  return compare(x.read(), std::vector<float>(count, 1.f + launches));
}

}  // namespace

std::vector<test::InstructionCheck> hopper_checks() {
  using bf16 = __nv_bfloat16;
  return {{"mbarrier", mbarriers},
          {"setmaxnreg_elect_bar", registers_and_barriers},
          {"stmatrix_x1", stmatrix<1, false>},
          {"stmatrix_x2", stmatrix<2, false>},
          {"stmatrix_x4", stmatrix<4, false>},
          {"stmatrix_x4_trans", stmatrix<4, true>},
          {"bulk_copy", bulk_copies},
          {"tma_load", tile<Swizzle::none>},
          {"tma_load_swizzled", tile<Swizzle::b128>},
          {"tma_load_im2col", im2col},
          {"tma_store", stores<false>},
          {"tma_reduce_add", stores<true>},
          {"wgmma_n64", wgmma<__half, 64>},
          {"wgmma_n192", wgmma<bf16, 192>},
          {"wgmma_b_mn_major", wgmma<bf16, 128, Major::k, Major::mn>},
          {"wgmma_a_mn_major", wgmma<__half, 128, Major::mn, Major::k>},
          {"wgmma_both_mn_major", wgmma<bf16, 192, Major::mn, Major::mn>},
          {"wgmma_a_in_registers", wgmma<bf16, 64, Major::k, Major::mn, true>},
          {"dependent_launch", dependent_launches}};
}

}  // namespace bv::BAREVISION_GPU
