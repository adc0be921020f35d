// The exact GELU of inp + bias:
//   x = inp + bias,   out = x Phi(x),   dinp = dout * (Phi(x) + x phi(x)),   dbias (+)= sum of dinp
// Saved for backward: inp alone. dinp =; dbias = or += by accumulate, in column_sums.cuh's two
// stages. A thread keeps to one access' width of columns (16 bytes, or 1 element where C does not
// allow that) and walks down the rows, 4 rows' loads at a time forward and 2 backward; its bias,
// and backward its sums of dinp, stay in registers.
//
// Phi by its tail, which 10 multiply-adds and an ex2 give:
//   Phi(-t) = 2^P(t) for t >= 0,   x Phi(x) = max(x, 0) - |x| Phi(-|x|)
// P is minimax on 0 <= t <= 6 for an error of 4e-9 in Phi, and relative to Phi(-t) of 4e-6 there;
// in fp32 both come to 5e-8 and 7e-6. Further right P still falls, faster than it should: 2^P goes
// to 0 without a clamp.
//
// 4 (fp32: 8) bytes an element forward, 6 (12) backward. At 80% of an H200's 4.3 TB/s each of its
// 132 SMs moves 15 bytes a clock (1.75 GHz) and can issue 128 threads' instructions: 34
// an element forward in 16 bits, 51 backward. Forward takes 18 (conversions, bias, 10 + 1 for 2^P,
// 2 around it, addresses), backward 26 with phi's own ex2; erff alone would take about 25. So
// memory is the limit. 64 registers: 4 blocks of 256 threads on sm_80 and sm_90, each thread with
// 64 bytes under way: 64 KB, twice what the memory's latency asks for.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int blocks_per_sm = 4;

// Phi(-t), t >= 0.
__device__ inline float normal_tail(float t) {
  float p = fmaf(-2.65055636e-8f, t, 8.04915625e-7f);
  p = fmaf(p, t, -1.04434742e-5f);
  p = fmaf(p, t, 7.36535557e-5f);
  p = fmaf(p, t, -0.000270553982f);
  p = fmaf(p, t, -1.84922812e-5f);
  p = fmaf(p, t, 0.00696976226f);
  p = fmaf(p, t, -0.0524572555f);
  p = fmaf(p, t, -0.459215343f);
  p = fmaf(p, t, -1.15110488f);
  p = fmaf(p, t, -1.0f);
  return ex2_approx_ftz(p);
}
__device__ inline float gelu(float x) {
  const float t = fabsf(x);
  return fmaf(-t, normal_tail(t), fmaxf(x, 0));  // a NaN stays one
}
__device__ inline float gelu_slope(float x) {
  const float tail = normal_tail(fabsf(x));
  const float density = ex2_approx_ftz(fmaf(x * x, -0.721347520f, -1.32574806f));
  return fmaf(x, density, x < 0 ? tail : 1 - tail);
}

template <class T, int width>
__device__ void load_bias(float (&bias)[width], const void* from, int column, int C) {
  Elements<T, width> b{};
  if (column < C) b = load<width>(static_cast<const T*>(from) + column);
#pragma unroll
  for (int i = 0; i < width; ++i) bias[i] = to_float(b.at[i]);
}

template <class T, int width>
__global__ void __launch_bounds__(256, blocks_per_sm) bias_gelu_forward(BiasGeluForward op) {
  using S = Stripe<width>;
  constexpr int ahead = 4;
  const int column = S::column();
  if (column >= op.shape.C) return;  // there are no barriers
  float bias[width];
  load_bias<T>(bias, op.bias, column, op.shape.C);
  const unsigned rows = op.shape.rows;
  for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
    Elements<T, width> inp[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const unsigned r = S::row_or(row, k, rows);
      inp[k] = load<width>(static_cast<const T*>(op.inp) + size_t(r) * op.shape.C + column);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const unsigned r = row + k * S::step();
      Elements<T, width> out;
#pragma unroll
      for (int i = 0; i < width; ++i)
        out.at[i] = from_float<T>(gelu(to_float(inp[k].at[i]) + bias[i]));
      if (r < rows) store(static_cast<T*>(op.out) + size_t(r) * op.shape.C + column, out);
    }
  }
}

template <class T, int width>
__global__ void __launch_bounds__(256, blocks_per_sm) bias_gelu_backward(BiasGeluBackward op) {
  using S = Stripe<width>;
  constexpr int ahead = 2;
  const int column = S::column();
  float bias[width], dbias[width] = {};
  load_bias<T>(bias, op.bias, column, op.shape.C);
  const unsigned rows = column < op.shape.C ? op.shape.rows : 0;
  for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
    Elements<T, width> dout[ahead], inp[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const size_t at = size_t(S::row_or(row, k, rows)) * op.shape.C + column;
      dout[k] = load<width>(static_cast<const T*>(op.dout) + at);
      inp[k] = load<width>(static_cast<const T*>(op.inp) + at);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const unsigned r = row + k * S::step();
      Elements<T, width> dinp;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float d = to_float(dout[k].at[i]) * gelu_slope(to_float(inp[k].at[i]) + bias[i]);
        dinp.at[i] = from_float<T>(d);
        if (r < rows) dbias[i] += d;
      }
      if (r < rows) store(static_cast<T*>(op.dinp) + size_t(r) * op.shape.C + column, dinp);
    }
  }
  S::write_sums(dbias, static_cast<float*>(op.workspace) + size_t(blockIdx.y) * op.shape.C,
                op.shape.C, shared<typename S::Shared>());
}

template <int width>
dim3 grid(const DeviceProps& props, int rows, int C) {
  return Stripe<width>::grid(props, blocks_per_sm, rows, C);
}

}  // namespace

template <>
void CudaKernels::run(const BiasGeluForward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<bias_gelu_forward<T, width>>(grid<width>(props_, op.shape.rows, op.shape.C),
                                        Stripe<width>::threads, 0, stream, op);
  });
}

template <>
size_t CudaKernels::workspace(const BiasGeluBackward& op) {
  size_t bytes = 0;
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    bytes = sizeof(float) * grid<width>(props_, op.shape.rows, op.shape.C).y * op.shape.C;
  });
  return bytes;
}

template <>
void CudaKernels::run(const BiasGeluBackward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    const dim3 blocks = grid<width>(props_, op.shape.rows, op.shape.C);
    launch<bias_gelu_backward<T, width>>(blocks, Stripe<width>::threads,
                                         sizeof(typename Stripe<width>::Shared), stream, op);
    finish_column_sums({.out = op.dbias,
                        .out2 = nullptr,
                        .partial = static_cast<const float*>(op.workspace),
                        .blocks = int(blocks.y),
                        .C = op.shape.C,
                        .accumulate = op.accumulate},
                       stream);
  });
}

}  // namespace bv::BAREVISION_GPU
