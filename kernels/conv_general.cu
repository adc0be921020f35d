// Plain: a thread an element of the result.
#include "kernels/conv.cuh"

namespace bv::BAREVISION_GPU {
namespace {
constexpr int threads = 128;
unsigned blocks(double count) { return static_cast<unsigned>((count + threads - 1) / threads); }

template <class T>
__global__ void __launch_bounds__(threads)
    conv_general_forward_kernel(ConvForward op, int P, int Q) {
  const ConvShape s = op.shape;
  const int C = s.C / s.groups;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= int64_t{s.N} * P * Q * s.K) return;
  const int k = i % s.K;
  const int64_t position = i / s.K;
  const int q = position % Q, p = position / Q % P, n = position / Q / P;
  const int first = k / (s.K / s.groups) * C;
  float sum = 0;
  for (int r = 0; r < s.R; ++r)
    for (int t = 0; t < s.S; ++t) {
      const int h = p * s.stride - s.padding + r, w = q * s.stride - s.padding + t;
      if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
      const T* x = static_cast<const T*>(op.inp) + (int64_t{n * s.H + h} * s.W + w) * s.C + first;
      const T* f = static_cast<const T*>(op.weight) + (int64_t{k * s.R + r} * s.S + t) * C;
      for (int c = 0; c < C; ++c) sum = fmaf(to_float(x[c]), to_float(f[c]), sum);
    }
  static_cast<T*>(op.out)[i] = from_float<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(threads)
    conv_general_input_kernel(ConvBackwardInput op, int P, int Q) {
  const ConvShape s = op.shape;
  const int C = s.C / s.groups, K = s.K / s.groups;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= int64_t{s.N} * s.H * s.W * s.C) return;
  const int channel = i % s.C, c = channel % C, first = channel / C * K;
  const int64_t position = i / s.C;
  const int w = position % s.W, h = position / s.W % s.H, n = position / s.W / s.H;
  float sum = 0;
  for (int r = 0; r < s.R; ++r)
    for (int t = 0; t < s.S; ++t) {
      const int p = h + s.padding - r, q = w + s.padding - t;
      if (p < 0 || q < 0 || p % s.stride || q % s.stride) continue;
      if (p / s.stride >= P || q / s.stride >= Q) continue;
      const T* d = static_cast<const T*>(op.dout) +
                   (int64_t{n * P + p / s.stride} * Q + q / s.stride) * s.K + first;
      for (int k = 0; k < K; ++k)
        sum = fmaf(to_float(d[k]),
                   to_float(static_cast<const T*>(
                       op.weight)[((int64_t{first + k} * s.R + r) * s.S + t) * C + c]),
                   sum);
    }
  if (op.add) sum += to_float(static_cast<const T*>(op.add)[i]);
  static_cast<T*>(op.dinp)[i] = from_float<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(threads)
    conv_general_weight_kernel(ConvBackwardWeight op, int P, int Q) {
  const ConvShape s = op.shape;
  const int C = s.C / s.groups;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= int64_t{s.K} * s.R * s.S * C) return;
  const int c = i % C, t = i / C % s.S, r = i / C / s.S % s.R, k = i / C / s.S / s.R;
  const int channel = k / (s.K / s.groups) * C + c;
  float sum = 0;
  for (int n = 0; n < s.N; ++n)
    for (int p = 0; p < P; ++p)
      for (int q = 0; q < Q; ++q) {
        const int h = p * s.stride - s.padding + r, w = q * s.stride - s.padding + t;
        if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
        sum = fmaf(to_float(static_cast<const T*>(op.dout)[(int64_t{n * P + p} * Q + q) * s.K + k]),
                   to_float(static_cast<const T*>(
                       op.inp)[(int64_t{n * s.H + h} * s.W + w) * s.C + channel]),
                   sum);
      }
  op.dweight[i] = op.accumulate ? op.dweight[i] + sum : sum;
}

}  // namespace

size_t conv_general_forward_bytes(const Chip& chip, const ConvForward& op) {
  return column_moments_bytes(chip, op.dtype, op.shape.N * op.shape.P() * op.shape.Q(), op.shape.K);
}
void conv_general_forward(const Chip& chip, const ConvForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch<conv_general_forward_kernel<T>>(blocks(op.shape.out_count()), threads, 0, stream, op,
                                           op.shape.P(), op.shape.Q());
  });
  if (op.moments)
    column_moments(chip,
                   {.moments = op.moments,
                    .workspace = op.workspace,
                    .inp = op.out,
                    .rows = op.shape.N * op.shape.P() * op.shape.Q(),
                    .C = op.shape.K,
                    .dtype = op.dtype},
                   stream);
}
size_t conv_general_backward_input_bytes(const Chip&, const ConvBackwardInput&) { return 0; }
void conv_general_backward_input(const Chip&, const ConvBackwardInput& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch<conv_general_input_kernel<T>>(blocks(op.shape.inp_count()), threads, 0, stream, op,
                                         op.shape.P(), op.shape.Q());
  });
}
size_t conv_general_backward_weight_bytes(const Chip&, const ConvBackwardWeight&) { return 0; }
void conv_general_backward_weight(const Chip&, const ConvBackwardWeight& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch<conv_general_weight_kernel<T>>(blocks(op.shape.weight_count()), threads, 0, stream, op,
                                          op.shape.P(), op.shape.Q());
  });
}

}  // namespace bv::BAREVISION_GPU
