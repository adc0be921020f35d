// convolution: out = inp * weight and its gradients
//   out[n, p, q, k] = sum over r, s, c of inp[n, h, w, c] weight[k, r, s, c],
//   h = p stride - padding + r,  w = q stride - padding + s           out =
//   dinp    (= add +) the transposed sum over dout and weight          dinp =
//   dweight (+)= the sum over n, p, q of dout and inp                  = or += by accumulate
// By oneDNN (kernels/cpu/conv_onednn.h).
#include "kernels/cpu/column_moments.h"
#include "kernels/cpu/conv_onednn.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

template <class Op>
void check(const Op& op, const char* name) {
  const ConvShape& s = op.shape;
  require(op.dtype == DType::fp32, name, "dtype: the CPU computes in fp32");
  require(s.N > 0 && s.H > 0 && s.W > 0 && s.C > 0, name, "N, H, W, C: must be positive");
  require(s.K > 0 && s.R > 0 && s.S > 0, name, "K, R, S: must be positive");
  require(s.stride > 0, name, "stride: must be positive");
  require(s.padding >= 0, name, "padding: must not be negative");
  require(s.groups > 0, name, "groups: must be positive");
  require(s.C % s.groups == 0, name, "C: must be divisible by groups");
  require(s.K % s.groups == 0, name, "K: must be divisible by groups");
  require(s.R <= s.H + 2 * s.padding && s.S <= s.W + 2 * s.padding, name,
          "R, S: the filter must fit the padded image");
}

Convolution convolution(const ConvForward& op) {
  return {.shape = op.shape, .result = Convolution::Result::out};
}
Convolution convolution(const ConvBackwardInput& op) {
  return {.shape = op.shape, .result = Convolution::Result::dinp};
}
Convolution convolution(const ConvBackwardWeight& op) {
  return {.shape = op.shape, .result = Convolution::Result::dweight, .accumulate = op.accumulate};
}

// Tensors that are only read aren't const to oneDNN.
float* readable(const void* p) { return static_cast<float*>(const_cast<void*>(p)); }

// Bytes up to a multiple of 64.
size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t rows_of_out(const ConvShape& s) { return int64_t{s.N} * s.P() * s.Q(); }
size_t inp_bytes(const ConvShape& s) {
  return padded(size_t(s.N) * size_t(s.H) * size_t(s.W) * size_t(s.C) * sizeof(float));
}

}  // namespace

size_t CpuKernels::workspace_bytes(const ConvForward& op) {
  check(op, "ConvForward");
  return padded(MomentGroups{rows_of_out(op.shape)}.partial_count(op.shape.K) * sizeof(float)) +
         conv_->workspace_bytes(convolution(op));
}

void CpuKernels::run(const ConvForward& op, Stream) {
  check(op, "ConvForward");
  require(op.out && op.workspace && op.inp && op.weight, "ConvForward",
          "out, workspace, inp and weight must not be null");
  const int64_t rows = rows_of_out(op.shape);
  const size_t partial_bytes = padded(MomentGroups{rows}.partial_count(op.shape.K) * sizeof(float));
  auto* out = static_cast<float*>(op.out);
  conv_->run(convolution(op), {.inp = readable(op.inp),
                               .weight = readable(op.weight),
                               .out = out,
                               .workspace = static_cast<char*>(op.workspace) + partial_bytes});
  if (op.moments)
    column_moments(op.moments, static_cast<float*>(op.workspace), out, rows, op.shape.K);
}

size_t CpuKernels::workspace_bytes(const ConvBackwardInput& op) {
  check(op, "ConvBackwardInput");
  return inp_bytes(op.shape) + conv_->workspace_bytes(convolution(op));
}

void CpuKernels::run(const ConvBackwardInput& op, Stream) {
  check(op, "ConvBackwardInput");
  require(op.dinp && op.workspace && op.dout && op.weight, "ConvBackwardInput",
          "dinp, workspace, dout and weight must not be null");
  auto* dinp = static_cast<float*>(op.dinp);
  auto* sum = static_cast<float*>(op.workspace);
  const auto* add = static_cast<const float*>(op.add);
  conv_->run(convolution(op),
             {.inp = add ? sum : dinp,
              .weight = readable(op.weight),
              .out = readable(op.dout),
              .workspace = static_cast<char*>(op.workspace) + inp_bytes(op.shape)});
  if (!add) return;
  const int row = op.shape.W * op.shape.C;
#pragma omp parallel for schedule(static)
  for (int64_t h = 0; h < int64_t{op.shape.N} * op.shape.H; ++h)
    simd::for_each(row, [&](int i, auto lanes) {
      const int64_t at = h * row + i;
      lanes.store(dinp + at, lanes.load(add + at) + lanes.load(sum + at));
    });
}

size_t CpuKernels::workspace_bytes(const ConvBackwardWeight& op) {
  check(op, "ConvBackwardWeight");
  return conv_->workspace_bytes(convolution(op));
}

void CpuKernels::run(const ConvBackwardWeight& op, Stream) {
  check(op, "ConvBackwardWeight");
  require(op.dweight && op.workspace && op.dout && op.inp, "ConvBackwardWeight",
          "dweight, workspace, dout and inp must not be null");
  conv_->run(convolution(op), {.inp = readable(op.inp),
                               .weight = op.dweight,
                               .out = readable(op.dout),
                               .workspace = op.workspace});
}

}  // namespace bv::BAREVISION_ISA
