// convolution: out = inp * weight and its gradients
//   out[n, p, q, k] = sum over r, s, c of inp[n, h, w, c] weight[k, r, s, c],
//   h = p stride - padding + r,  w = q stride - padding + s            out =
//   dinp    = (add +) the transposed sum over dout and weight          dinp =
//   dweight (+)= the sum over n, p, q of dout and inp                  = or += per accumulate
// NHWC, weights KRSC. Two algorithms, chosen for each shape by the measured rules below:
// * products over rows (conv_rows.h, conv_weight_rows.h), which never multiply padding, and compute
//   moments and the sum with `add` while pixels are in the caches;
// * oneDNN's algorithm, a few per cent faster where nearly all taps are in bounds. With moments or
//   `add`, images are processed in chunks whose result stays in the last-level cache.
// Limited by arithmetic: each tensor is read or written about once.
#include "kernels/conv/conv_rows.h"
#include "kernels/conv/conv_weight_rows.h"
#include "kernels/cpu/column_moments.h"
#include "kernels/cpu/conv_onednn.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using Result = Convolution::Result;

// oneDNN takes non-const pointers, even to tensors that it only reads.
void* readable(const void* p) { return const_cast<void*>(p); }

// The address of an element of a tensor of this dtype.
void* at(void* tensor, DType dtype, size_t element) {
  return static_cast<char*>(tensor) + element * size_of(dtype);
}

// Rounds a number of floats up to a multiple of 64 bytes.
size_t padded(size_t count) { return (count + 15) / 16 * 16; }

ConvRows rows_for(const ConvShape& s, Result result) {
  const bool out = result == Result::out;
  const auto axes = out ? axes_of_out : axes_of_inp;
  return {.N = s.N,
          .H = out ? s.P() : s.H,
          .W = out ? s.Q() : s.W,
          .C = out ? s.K : s.C,
          .source_H = out ? s.H : s.P(),
          .source_W = out ? s.W : s.Q(),
          .depth = out ? s.C : s.K,
          .taps = s.R * s.S,
          .S = s.S,
          .y = axes(s.P(), s.H, s.R, s.stride, s.padding),
          .x = axes(s.Q(), s.W, s.S, s.stride, s.padding)};
}

// The fraction of the taps, over all pixels, that fall on the image and not on its padding.
double valid_taps(const ConvShape& s) {
  const auto along = [&](int P, int H, int R) {
    double taps = 0;
    for (int r = 0; r < R; ++r) taps += reach(P, H, r, s.stride, s.padding).count();
    return taps / (double(P) * R);
  };
  return along(s.P(), s.H, s.R) * along(s.Q(), s.W, s.S);
}

// Whether products over rows, which exist only in fp32, are faster: measured on residual networks
// with AVX-512 and oneDNN 2.6.
template <class Op>
bool by_rows(const Op& op, Result result) {
  const ConvShape& s = op.shape;
  if (op.dtype != DType::fp32) return false;
  if (s.groups > 1 || !rows_for(s, Result::out).fits() || !rows_for(s, Result::dinp).fits())
    return false;
  const bool small = s.P() * s.Q() <= 16, padded_much = valid_taps(s) < 0.87;
  if (result == Result::out) return small || padded_much;
  if (result == Result::dinp) return padded_much || double(s.K) * s.C > 128.0 * s.N * s.P() * s.Q();
  const bool wide = s.C >= simd::width;
  return small || (wide && padded_much) || (wide && s.stride > 1 && s.R * s.S > 1);
}

// Whether some tap falls on padding for every pixel: oneDNN 2.6 in bf16 doesn't write the gradient
// of such a tap's weights, or writes garbage.
bool has_idle_taps(const ConvShape& s) {
  const auto along = [&](int P, int H, int R) {
    for (int r = 0; r < R; ++r)
      if (reach(P, H, r, s.stride, s.padding).count() == 0) return true;
    return false;
  };
  return along(s.P(), s.H, s.R) || along(s.Q(), s.W, s.S);
}
bool needs_fp32(const ConvBackwardWeight& op) {
  return op.dtype == DType::bf16 && has_idle_taps(op.shape);
}

// A chunk for oneDNN. Its number of images divides N, so that one primitive serves all chunks.
Convolution chunked(const ConvShape& s, DType dtype, Result result) {
  constexpr double max_count = 2 << 20;  // floats of the result
  const double count = result == Result::out ? s.out_count() : s.inp_count();
  int chunks = 1;
  while (chunks < s.N && (s.N % chunks != 0 || count / chunks > max_count)) ++chunks;
  Convolution chunk{.shape = s, .result = result, .dtype = dtype};
  chunk.shape.N /= chunks;
  return chunk;
}

// Calls work(begin, n) for blocks that cover `count`.
template <class Work>
void in_blocks(size_t count, Work work) {
  constexpr size_t block = 4096;
#pragma omp parallel for schedule(static)
  for (size_t begin = 0; begin < count; begin += block)
    work(begin, static_cast<int>(count - begin < block ? count - begin : block));
}

// out[i] = a[i] + b[i]
template <class T>
void sum(T* out, const T* a, const float* b, size_t count) {
  in_blocks(count, [&](size_t begin, int n) {
    simd::for_each(n, [&](int i, auto lanes) {
      lanes.store(out + begin + i, lanes.load(a + begin + i) + lanes.load(b + begin + i));
    });
  });
}

// out[i] = inp[i]
void widen(float* out, const simd::bf16* inp, size_t count) {
  in_blocks(count, [&](size_t begin, int n) {
    simd::for_each(
        n, [&](int i, auto lanes) { lanes.store(out + begin + i, lanes.load(inp + begin + i)); });
  });
}

// Partial moments of out, which oneDNN writes chunk by chunk: the groups of all chunks, in order.
struct ChunkMoments {
  MomentGroups groups;
  int chunks, K;
  ChunkMoments(const ConvShape& all, const ConvShape& chunk)
      : groups{int64_t{chunk.N} * chunk.P() * chunk.Q()}, chunks(all.N / chunk.N), K(all.K) {}
  size_t partial_count() const { return padded(groups.partial_count(K) * size_t(chunks)); }
};

}  // namespace

template <>
size_t CpuKernels::workspace(const ConvForward& op) {
  if (by_rows(op, Result::out)) {
    const ConvRows rows = rows_for(op.shape, Result::out);
    return (rows.packed_count() + ConvUnits(rows).partial_count()) * sizeof(float);
  }
  const Convolution all{.shape = op.shape, .result = Result::out, .dtype = op.dtype};
  const Convolution chunk = chunked(op.shape, op.dtype, Result::out);
  const size_t a = conv_->workspace_bytes(all), b = conv_->workspace_bytes(chunk);
  return ChunkMoments(op.shape, chunk.shape).partial_count() * sizeof(float) + (a > b ? a : b);
}

template <>
void CpuKernels::run(const ConvForward& op) {
  auto* workspace = floats(op.workspace);
  if (by_rows(op, Result::out)) {
    const ConvRows rows = rows_for(op.shape, Result::out);
    const ConvUnits units(rows);
    float* partial = workspace + rows.packed_count();
    pack_for_out(workspace, static_cast<const float*>(op.weight), rows);
    conv_rows(rows, units,
              {.result = floats(op.out),
               .source = static_cast<const float*>(op.inp),
               .packed = workspace,
               .partial = op.batch_stats ? partial : nullptr});
    if (op.batch_stats)
      merge_groups(op.batch_stats, partial, units.count, op.shape.K,
                   [&](int unit) { return units.rows_of(unit); });
    return;
  }
  Convolution chunk = chunked(op.shape, op.dtype, Result::out);
  const ChunkMoments moments(op.shape, chunk.shape);
  if (!op.batch_stats) chunk.shape.N = op.shape.N;
  const auto inp_step = size_t(chunk.shape.inp_count()), out_step = size_t(chunk.shape.out_count());
  const int groups = moments.groups.count();
  for (int i = 0; i < op.shape.N / chunk.shape.N; ++i) {
    conv_->run(chunk, {.inp = at(readable(op.inp), op.dtype, i * inp_step),
                       .weight = readable(op.weight),
                       .out = at(op.out, op.dtype, i * out_step),
                       .workspace = workspace + moments.partial_count()});
    if (!op.batch_stats) continue;
    with_type(op.dtype, [&]<class T>(T) {
      group_moments(workspace + i * moments.groups.partial_count(op.shape.K), moments.groups,
                    as<T>(op.out) + i * out_step, op.shape.K);
    });
  }
  if (op.batch_stats)
    merge_groups(op.batch_stats, workspace, groups * moments.chunks, op.shape.K,
                 [&](int group) { return moments.groups.rows_of(group % groups); });
}

template <>
size_t CpuKernels::workspace(const ConvBackwardInput& op) {
  if (by_rows(op, Result::dinp))
    return rows_for(op.shape, Result::dinp).packed_count() * sizeof(float);
  const Convolution all{.shape = op.shape, .result = Result::dinp, .dtype = op.dtype};
  Convolution chunk = chunked(op.shape, op.dtype, Result::dinp);
  chunk.to_fp32 = op.dtype == DType::bf16;
  const size_t a = conv_->workspace_bytes(all), b = conv_->workspace_bytes(chunk);
  return padded(size_t(chunk.shape.inp_count())) * sizeof(float) + (a > b ? a : b);
}

template <>
void CpuKernels::run(const ConvBackwardInput& op) {
  auto* workspace = floats(op.workspace);
  if (by_rows(op, Result::dinp)) {
    const ConvRows rows = rows_for(op.shape, Result::dinp);
    pack_for_inp(workspace, static_cast<const float*>(op.weight), rows);
    return conv_rows(rows, ConvUnits(rows),
                     {.result = floats(op.dinp),
                      .add = floats(op.add),
                      .source = static_cast<const float*>(op.dout),
                      .packed = workspace});
  }
  Convolution chunk = chunked(op.shape, op.dtype, Result::dinp);
  float* rest = workspace + padded(size_t(chunk.shape.inp_count()));
  chunk.to_fp32 = op.add && op.dtype == DType::bf16;  // rounded after the addition
  if (!op.add) chunk.shape.N = op.shape.N;
  const auto inp_step = size_t(chunk.shape.inp_count()), out_step = size_t(chunk.shape.out_count());
  for (int i = 0; i < op.shape.N / chunk.shape.N; ++i) {
    conv_->run(chunk, {.inp = op.add ? workspace : at(op.dinp, op.dtype, i * inp_step),
                       .weight = readable(op.weight),
                       .out = at(readable(op.dout), op.dtype, i * out_step),
                       .workspace = rest});
    if (!op.add) continue;
    with_type(op.dtype, [&]<class T>(T) {
      sum(as<T>(op.dinp) + i * inp_step, as<T>(op.add) + i * inp_step, workspace, inp_step);
    });
  }
}

template <>
size_t CpuKernels::workspace(const ConvBackwardInputSums& op) {
  const size_t a = workspace(op.input_gradient()), b = workspace(op.norm_sums());
  return a > b ? a : b;
}

template <>
void CpuKernels::run(const ConvBackwardInputSums& op) {
  run(op.input_gradient());
  run(op.norm_sums());
}

template <>
size_t CpuKernels::workspace(const ConvBackwardWeight& op) {
  if (needs_fp32(op)) {
    ConvBackwardWeight wide = op;
    wide.dtype = DType::fp32;
    return (padded(size_t(op.shape.inp_count())) + padded(size_t(op.shape.out_count()))) *
               sizeof(float) +
           workspace(wide);
  }
  if (by_rows(op, Result::dweight)) return WeightRows{op.shape}.partial_count() * sizeof(float);
  return conv_->workspace_bytes({.shape = op.shape,
                                 .result = Result::dweight,
                                 .accumulate = op.accumulate,
                                 .dtype = op.dtype});
}

template <>
void CpuKernels::run(const ConvBackwardWeight& op) {
  if (needs_fp32(op)) {
    ConvBackwardWeight wide = op;
    const auto inp_count = size_t(op.shape.inp_count()), out_count = size_t(op.shape.out_count());
    float *inp = floats(op.workspace), *dout = inp + padded(inp_count);
    widen(inp, as<simd::bf16>(op.inp), inp_count);
    widen(dout, as<simd::bf16>(op.dout), out_count);
    wide.inp = inp, wide.dout = dout, wide.workspace = dout + padded(out_count);
    wide.dtype = DType::fp32;
    return run(wide);
  }
  if (by_rows(op, Result::dweight))
    return conv_weight_rows({op.shape}, op.dweight, static_cast<float*>(op.workspace),
                            static_cast<const float*>(op.dout), static_cast<const float*>(op.inp),
                            op.accumulate);
  conv_->run({.shape = op.shape,
              .result = Result::dweight,
              .accumulate = op.accumulate,
              .dtype = op.dtype},
             {.inp = readable(op.inp),
              .weight = op.dweight,
              .out = readable(op.dout),
              .workspace = op.workspace});
}

}  // namespace bv::BAREVISION_ISA
