// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += per accumulate
// cuBLASLt computes the products (kernels/cuda/matmul.h), with fp32 sums and dweight in fp32; its
// epilogue adds the bias. Column sums: kernels/cuda/column_sums.cuh, in a fixed order. For the
// shapes that linear_choice.h selects, one pass computes both the weight gradient and dbias
// (kernels/gemm/weight_gradient.cuh).
//
// Every sum is rounded to 16 bits once, after the bias is added. For rows that don't begin at
// multiples of 16 bytes, cuBLASLt breaks this rule: on an H100 it chose wmma kernels
// (s161616gemm_bf16), which store the product in bf16, and added the bias to that. Its numerical
// flags cover operands and accumulators, not this rounding. For such rows, as in a head with 10
// classes, the product is stored in fp32 in the workspace; round_product() adds bias and rounds:
// 8 more bytes per element. Limited by arithmetic: 2 M N K flops on M K + N K + M N elements.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/plain.cuh"
#include "kernels/gemm/linear_choice.h"
#include "kernels/gemm/weight_gradient.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void linear_forward_plain(LinearForward op) {
  const size_t M = op.shape.M, N = op.shape.N, K = op.shape.K, i = thread_number();
  if (i >= M * N) return;
  const size_t m = i / N, n = i % N;
  float sum = 0;
  for (size_t k = 0; k < K; ++k)
    sum += to_float(as<T>(op.inp)[m * K + k]) * to_float(as<T>(op.weight)[n * K + k]);
  as<T>(op.out)[i] = from_float<T>(op.bias ? sum + to_float(as<T>(op.bias)[n]) : sum);
}

template <class T>
__global__ void linear_backward_input_plain(LinearBackwardInput op) {
  const size_t M = op.shape.M, N = op.shape.N, K = op.shape.K, i = thread_number();
  if (i >= M * K) return;
  const size_t m = i / K, k = i % K;
  float sum = 0;
  for (size_t n = 0; n < N; ++n)
    sum += to_float(as<T>(op.dout)[m * N + n]) * to_float(as<T>(op.weight)[n * K + k]);
  as<T>(op.dinp)[i] = from_float<T>(sum);
}

template <class T>
__global__ void linear_backward_weight_plain(LinearBackwardWeight op) {
  const size_t M = op.shape.M, N = op.shape.N, K = op.shape.K, i = thread_number();
  if (i >= N * K) return;
  const size_t n = i / K, k = i % K;
  float sum = 0;
  for (size_t m = 0; m < M; ++m)
    sum += to_float(as<T>(op.dout)[m * N + n]) * to_float(as<T>(op.inp)[m * K + k]);
  set_or_add(op.dweight[i], sum, op.accumulate);
}

template <class T>
__global__ void linear_backward_bias_plain(LinearBackwardWeight op) {
  const size_t M = op.shape.M, N = op.shape.N, n = thread_number();
  if (n >= N) return;
  float sum = 0;
  for (size_t m = 0; m < M; ++m) sum += to_float(as<T>(op.dout)[m * N + n]);
  set_or_add(op.dbias[n], sum, op.accumulate);
}

// ---- by cuBLASLt --------------------------------------------------------------------------------

// Whether all rows begin at multiples of 16 bytes in 16 bits; rows have N or K elements.
bool in_whole_packs(const LinearShape& s) { return s.N % 8 == 0 && s.K % 8 == 0; }

// The dtype of the product's result: fp32 if round_product() follows.
template <class Op>
DType dtype_of_sums(const Op& op) {
  return in_whole_packs(op.shape) ? op.dtype : DType::fp32;
}
bool rounded_apart(const Product& p) { return p.c_dtype != p.dtype; }

Product product(const LinearForward& op, bool has_bias) {
  const auto [M, N, K] = op.shape;
  const DType sums = dtype_of_sums(op);
  return {.M = M,
          .N = N,
          .K = K,
          .b_transposed = true,
          .has_bias = has_bias && sums == op.dtype,
          .dtype = op.dtype,
          .c_dtype = sums};
}
Product product(const LinearBackwardInput& op) {
  const auto [M, N, K] = op.shape;
  return {.M = M, .N = K, .K = N, .dtype = op.dtype, .c_dtype = dtype_of_sums(op)};
}
Product product(const LinearBackwardWeight& op) {
  const auto [M, N, K] = op.shape;
  return {.M = N, .N = K, .K = M, .a_transposed = true, .dtype = op.dtype, .c_dtype = DType::fp32};
}

bool dbias_on_the_way(const LinearBackwardWeight& op, const DeviceProps& props) {
  const bool has_mma = op.dtype == DType::fp16 || (op.dtype == DType::bf16 && props.arch >= 80);
  return has_mma && in_whole_packs(op.shape) && in_one_pass(props.arch, op.shape);
}

// Bytes of the product's part of a workspace, rounded up so that another part can follow.
size_t padded(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

// ---- rounding apart from the product ------------------------------------------------------------
constexpr int block_columns = 32, block_rows = 8;

// out[M,N] = sums[M,N] (+ bias[N]). A thread computes one column of every gridDim.y * block_rows-th
// row.
template <class T>
__global__ void __launch_bounds__(block_columns* block_rows)
    round_product(T* out, const float* sums, const T* bias, int M, int N) {
  await_kernel_ahead();
  const int n = static_cast<int>(blockIdx.x * block_columns + threadIdx.x);
  if (n >= N) return;
  const float added = bias ? to_float(bias[n]) : 0;
  for (int m = static_cast<int>(blockIdx.y * block_rows + threadIdx.y); m < M;
       m += static_cast<int>(gridDim.y * block_rows)) {
    const size_t at = static_cast<size_t>(m) * N + n;
    out[at] = from_float<T>(sums[at] + added);
  }
}

size_t product_bytes(Matmul& matmul, const Product& p) {
  const size_t own = matmul.workspace_bytes(p);
  return rounded_apart(p) ? padded(own) + sizeof(float) * p.M * p.N : own;
}

// out = a b + bias, rounded once. workspace: [product_bytes]
void run_product(Matmul& matmul, const Product& p, const ProductArguments& a, cudaStream_t stream) {
  if (!rounded_apart(p)) return matmul.run(p, a, stream);
  auto* const sums =
      reinterpret_cast<float*>(static_cast<char*>(a.workspace) + padded(matmul.workspace_bytes(p)));
  matmul.run(p, {.c = sums, .workspace = a.workspace, .a = a.a, .b = a.b}, stream);
  constexpr int max_blocks = 1024;  // along y: they fill a GPU
  const dim3 grid(ceil_div(p.N, block_columns), std::min(ceil_div(p.M, block_rows), max_blocks));
  by_16_bits(p.dtype, [&]<class T>() {
    launch<round_product<T>>(grid, dim3(block_columns, block_rows), 0, stream, static_cast<T*>(a.c),
                             sums, static_cast<const T*>(a.bias), p.M, p.N);
  });
}

// ---- weight gradient and dbias in one pass ------------------------------------------------------
using namespace weight_gradient;
constexpr int groups = 2, tile = 128;
template <class T>
using LinearSums = WarpTile<T, tile, tile, warps_m, warps_n>;

struct LinearShared {
  union {
    Stage<tile, tile> stage[stages];
    Pack<float> sums[tile * tile / 4];  // at the end, the second group's
  };
};

// Adds the second group's sums to the first's.
template <int rows, int columns>
__device__ void add_groups(float (&sum)[rows][columns][4], LinearShared& s) {
  const bool second = threadIdx.x >= threads;
  Pack<float>* const mine = s.sums + threadIdx.x % threads;
  __syncthreads();  // all threads are done with the memory's former contents
#pragma unroll
  for (int i = 0; i < rows * columns; ++i) {
    Pack<float> x;
#pragma unroll
    for (int e = 0; e < 4; ++e) x.at[e] = sum[i / columns][i % columns][e];
    if (second) mine[i * threads] = x;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < rows * columns; ++i)
    if (!second) {
      const Pack<float> x = mine[i * threads];
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i / columns][i % columns][e] += x.at[e];
    }
}

// weight_gradient.cuh's product for a linear layer: two groups of warps split each step's pixels
// and add up their sums at the end. One such block gives an SM as many warps as two blocks of one
// group, with half as many parts to add up. The blocks with c = 0 read each row of dout once, so
// they multiply it by a column of ones, too, for dbias. Each part's dbias follows its dweight in
// the workspace. Limited by L2.
template <class T>
__global__ void __launch_bounds__(groups* threads, 1) linear_backward_weight(WeightProduct p) {
  await_kernel_ahead();
  using Sums = LinearSums<T>;
  auto& s = shared<LinearShared>();
  const Tile t = tile_of_block<tile, tile>(p);
  const bool first_column = t.c == 0 && Sums::column() == 0;  // uniform in a warp
  const uint32_t ones = cvt_rn_x2<T>(1, 1);
  Sums sums;
  float dbias[Sums::ms][1][4] = {};  // columns are equal; [0], [2]: rows lane / 4, lane / 4 + 8
  sum_pixels<groups>(sums, s.stage, p, t, [&](const uint32_t(&a)[4], int i) {
    if (first_column) mma_m16n8k16<T>(dbias[i][0], a, ones, ones);
  });
  add_groups(sums.sum, s);
  if (threadIdx.x < threads) store_sums<Layer::linear>(p, t, sums);
  if (t.c > 0) return;
  add_groups(dbias, s);
  if (threadIdx.x >= threads || !first_column || threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int i = 0; i < 2 * Sums::ms; ++i) {
    const int k = t.k + Sums::row() + i * 8 + threadIdx.x % warp_size / 4;
    if (k >= p.K) continue;
    float& to = p.dbias[blockIdx.y * p.part + k];
    to = p.accumulate ? to + dbias[i / 2][0][i % 2 * 2] : dbias[i / 2][0][i % 2 * 2];
  }
}

ConvShape as_conv(const LinearShape& s) {
  return {.N = 1, .H = 1, .W = s.M, .C = s.K, .K = s.N, .R = 1, .S = 1, .stride = 1, .padding = 0};
}

// One block fills an SM. Parts have at least 16 steps: adding up shorter parts costs more time.
PixelParts linear_parts(const DeviceProps& props, const LinearShape& s) {
  return parts_of_pixels(as_conv(s), ceil_div(s.M, step_pixels),
                         ceil_div(s.N, tile) * ceil_div(s.K, tile), props.sms, 16);
}

size_t linear_weight_gradient_bytes(const DeviceProps& props, const LinearShape& s) {
  const PixelParts parts = linear_parts(props, s);
  return parts.bytes(as_conv(s)) + (parts.count == 1 ? 0 : sizeof(float) * parts.count * s.N);
}

void linear_weight_gradient(const DeviceProps& props, const LinearBackwardWeight& op,
                            cudaStream_t stream) {
  const ConvShape s = as_conv(op.shape);
  const PixelParts parts = linear_parts(props, op.shape);
  const int64_t weights = int64_t{s.K} * s.C;
  const bool direct = parts.count == 1;
  auto* const out = direct ? op.dweight : static_cast<float*>(op.workspace);
  const WeightProduct product{.geometry = Geometry::forward(s),
                              .out = out,
                              .dbias = direct ? op.dbias : out + weights,
                              .part = weights + s.K,
                              .dout = op.dout,
                              .inp = op.inp,
                              .C = s.C,
                              .K = s.K,
                              .n_tiles = ceil_div(s.C, tile),
                              .steps_of_part = parts.steps,
                              .accumulate = direct && op.accumulate};
  by_16_bits(op.dtype, [&]<class T>() {
    launch<linear_backward_weight<T>>(dim3(ceil_div(s.K, tile) * product.n_tiles, parts.count),
                                      groups * threads, sizeof(LinearShared), stream, product);
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .out2 = op.dbias,
                        .partial = out,
                        .C = weights,
                        .C2 = s.K,
                        .blocks = parts.count,
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace

// Pointers aren't set yet, so the workspace allows for a bias.
template <>
size_t CudaKernels::workspace(const LinearForward& op) {
  return std::max(product_bytes(*matmul_, product(op, true)),
                  product_bytes(*matmul_, product(op, false)));
}

template <>
void CudaKernels::run(const LinearForward& op, cudaStream_t stream) {
  run_product(
      *matmul_, product(op, op.bias != nullptr),
      {.c = op.out, .workspace = op.workspace, .a = op.inp, .b = op.weight, .bias = op.bias},
      stream);
}

template <>
size_t CudaKernels::workspace(const LinearBackwardInput& op) {
  return product_bytes(*matmul_, product(op));
}

template <>
void CudaKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  run_product(*matmul_, product(op),
              {.c = op.dinp, .workspace = op.workspace, .a = op.dout, .b = op.weight}, stream);
}

// Pointers aren't set yet, so the workspace allows for dbias.
template <>
size_t CudaKernels::workspace(const LinearBackwardWeight& op) {
  const size_t product_bytes = matmul_->workspace_bytes(product(op));
  if (dbias_on_the_way(op, props_))
    return std::max(product_bytes, linear_weight_gradient_bytes(props_, op.shape));
  return padded(product_bytes) + column_sums_bytes(props_, op.dtype, op.shape.M, op.shape.N);
}

template <>
void CudaKernels::run(const LinearBackwardWeight& op, cudaStream_t stream) {
  if (op.dbias && dbias_on_the_way(op, props_)) return linear_weight_gradient(props_, op, stream);
  const Product p = product(op);
  matmul_->run(p,
               {.c = op.dweight,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.inp,
                .accumulate = op.accumulate},
               stream);
  if (op.dbias)
    column_sums(
        props_,
        {.out = op.dbias,
         .workspace = static_cast<char*>(op.workspace) + padded(matmul_->workspace_bytes(p)),
         .inp = op.dout,
         .rows = op.shape.M,
         .C = op.shape.N,
         .dtype = op.dtype,
         .accumulate = op.accumulate},
        stream);
}

template <>
void PlainKernels::run(const LinearForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<linear_forward_plain<T>>(size_t(op.shape.M) * op.shape.N, stream, op);
  });
}

template <>
void PlainKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<linear_backward_input_plain<T>>(size_t(op.shape.M) * op.shape.K, stream, op);
  });
}

template <>
void PlainKernels::run(const LinearBackwardWeight& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<linear_backward_weight_plain<T>>(size_t(op.shape.N) * op.shape.K, stream, op);
    if (op.dbias) launch_each<linear_backward_bias_plain<T>>(op.shape.N, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
