#include "tests/kernels/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/philox.h"

namespace bv::test::oracle {
namespace {

constexpr double sqrt_half = 0.70710678118654752440, sqrt_2pi = 2.50662827463100050242;

size_t at(int row, int columns, int column) {
  return size_t(row) * size_t(columns) + size_t(column);
}

}  // namespace

Tensor input_patches(const std::vector<uint8_t>& images, const std::vector<Crop>& crops,
                     const InputPatches& s) {
  const int grid = s.shape.size / s.shape.patch, length = 3 * s.shape.patch * s.shape.patch;
  Tensor out(size_t(s.shape.B) * grid * grid * length);
  for (int b = 0; b < s.shape.B; ++b)
    for (int y = 0; y < s.shape.size; ++y)
      for (int x = 0; x < s.shape.size; ++x)
        for (int c = 0; c < 3; ++c) {
          const Crop& crop = crops[b];
          const int from_y = y + crop.top;
          // The picture is cropped, then mirrored.
          const int from_x = (crop.flip ? s.shape.size - 1 - x : x) + crop.left;
          const bool inside =
              from_y >= 0 && from_y < s.shape.height && from_x >= 0 && from_x < s.shape.width;
          const double pixel =
              inside
                  ? images[((size_t(b) * s.shape.height + from_y) * s.shape.width + from_x) * 3 + c]
                  : 0;
          const int token = y / s.shape.patch * grid + x / s.shape.patch;
          const int element =
              (c * s.shape.patch + y % s.shape.patch) * s.shape.patch + x % s.shape.patch;
          out[(size_t(b) * grid * grid + token) * length + element] =
              (Tracked(pixel) / Tracked(255) - Tracked(s.shape.mean[c])) / Tracked(s.shape.std[c]);
        }
  return out;
}

// ---- linear -------------------------------------------------------------------------------------
Tensor linear_forward(const Values& inp, const Values& weight, const Values& bias, int M, int N,
                      int K) {
  Tensor out(size_t(M) * N);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      Tracked sum = 0;
      for (int k = 0; k < K; ++k) sum += Tracked(inp[at(m, K, k)]) * Tracked(weight[at(n, K, k)]);
      out[at(m, N, n)] = bias.empty() ? sum : sum + Tracked(bias[n]);
    }
  return out;
}

Tensor linear_backward_input(const Values& dout, const Values& weight, int M, int N, int K) {
  Tensor dinp(size_t(M) * K);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < K; ++k)
        dinp[at(m, K, k)] += Tracked(dout[at(m, N, n)]) * Tracked(weight[at(n, K, k)]);
  return dinp;
}

LinearGradient linear_backward_weight(const Values& dout, const Values& inp, int M, int N, int K) {
  LinearGradient g{Tensor(size_t(N) * K), Tensor(N)};
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      for (int k = 0; k < K; ++k)
        g.dweight[at(n, K, k)] += Tracked(dout[at(m, N, n)]) * Tracked(inp[at(m, K, k)]);
      g.dbias[n] += Tracked(dout[at(m, N, n)]);
    }
  return g;
}

// ---- gelu ---------------------------------------------------------------------------------------
Tensor bias_gelu_forward(const Values& inp, const Values& bias, int rows, int C) {
  Tensor out(inp.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < C; ++c) {
      const Tracked x = Tracked(inp[at(r, C, c)]) + Tracked(bias[c]);
      out[at(r, C, c)] = x * Tracked(0.5) * (Tracked(1) + erf(x * Tracked(sqrt_half)));
    }
  return out;
}

GeluGradient bias_gelu_backward(const Values& dout, const Values& inp, const Values& bias, int rows,
                                int C) {
  GeluGradient g{Tensor(inp.size()), Tensor(C)};
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < C; ++c) {
      const size_t i = at(r, C, c);
      const Tracked x = Tracked(inp[i]) + Tracked(bias[c]);
      const Tracked cumulative = Tracked(0.5) * (Tracked(1) + erf(x * Tracked(sqrt_half)));
      const Tracked density = exp(Tracked(-0.5) * x * x) / Tracked(sqrt_2pi);
      g.dinp[i] = Tracked(dout[i]) * (cumulative + x * density);
      g.dbias[c] += g.dinp[i];
    }
  return g;
}

// ---- layernorm ----------------------------------------------------------------------------------
LayerNormResult layernorm_forward(const Values& inp, const Values& residual, const Values& weight,
                                  const Values& bias, int rows, int C, double eps, DType dtype) {
  LayerNormResult r{Tensor(inp.size()), Tensor(inp.size()), Tensor(rows), Tensor(rows)};
  for (int row = 0; row < rows; ++row) {
    Tracked total = 0, squares = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.sum[i] = residual.empty() ? Tracked(inp[i]) : Tracked(inp[i]) + Tracked(residual[i]);
      if (dtype != DType::fp32) r.sum[i] = held(held(r.sum[i].value, DType::fp32), dtype);
      total += r.sum[i];
    }
    const Tracked mean = total / Tracked(C);
    for (int c = 0; c < C; ++c) {
      const Tracked centred = r.sum[at(row, C, c)] - mean;
      squares += centred * centred;
    }
    const Tracked rstd = Tracked(1) / sqrt(squares / Tracked(C) + Tracked(eps));
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.out[i] = (r.sum[i] - mean) * rstd * Tracked(weight[c]) + Tracked(bias[c]);
    }
    r.mean[row] = mean, r.rstd[row] = rstd;
  }
  return r;
}

LayerNormGradient layernorm_backward(const Values& dout, const Values& dsum, const Values& sum,
                                     const Values& mean, const Values& rstd, const Values& weight,
                                     int rows, int C) {
  LayerNormGradient g{Tensor(sum.size()), Tensor(C), Tensor(C)};
  for (int r = 0; r < rows; ++r) {
    const Tracked scale = rstd[r];
    const auto xhat = [&](int c) { return (Tracked(sum[at(r, C, c)]) - Tracked(mean[r])) * scale; };
    const auto weighted = [&](int c) { return Tracked(dout[at(r, C, c)]) * Tracked(weight[c]); };
    Tracked mean_g = 0, mean_gx = 0;
    for (int c = 0; c < C; ++c) {
      mean_g += weighted(c), mean_gx += weighted(c) * xhat(c);
      g.dweight[c] += Tracked(dout[at(r, C, c)]) * xhat(c),
          g.dbias[c] += Tracked(dout[at(r, C, c)]);
    }
    mean_g = mean_g / Tracked(C), mean_gx = mean_gx / Tracked(C);
    for (int c = 0; c < C; ++c) {
      const Tracked d = scale * (weighted(c) - mean_g - xhat(c) * mean_gx);
      g.dinp[at(r, C, c)] = dsum.empty() ? d : d + Tracked(dsum[at(r, C, c)]);
    }
  }
  return g;
}

// ---- tokens -------------------------------------------------------------------------------------
Tensor embed_forward(const Values& patches, const Values& class_token, const Values& position,
                     int B, int P, int C) {
  Tensor out(size_t(B) * (1 + P) * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const double token = t == 0 ? class_token[c] : patches[at(b * P + t - 1, C, c)];
        out[at(b * (1 + P) + t, C, c)] = Tracked(token) + Tracked(position[at(t, C, c)]);
      }
  return out;
}

EmbedGradient embed_backward(const Values& dout, int B, int P, int C) {
  EmbedGradient g{Tensor(size_t(B) * P * C), Tensor(C), Tensor(size_t(1 + P) * C)};
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const Tracked d = dout[at(b * (1 + P) + t, C, c)];
        g.dposition[at(t, C, c)] += d;
        if (t == 0)
          g.dclass_token[c] += d;
        else
          g.dpatches[at(b * P + t - 1, C, c)] = d;
      }
  return g;
}

Tensor class_token_forward(const Values& inp, int B, int N, int C) {
  Tensor out(size_t(B) * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) out[at(b, C, c)] = inp[at(b * N, C, c)];
  return out;
}

Tensor class_token_backward(const Values& dout, int B, int N, int C) {
  Tensor dinp(size_t(B) * N * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) dinp[at(b * N, C, c)] = dout[at(b, C, c)];
  return dinp;
}

// ---- dropout ------------------------------------------------------------------------------------
bool kept(uint32_t decision, int image, uint32_t layer, float drop, const StepParams& p) {
  const uint32_t position = p.position + uint32_t(image);
  const Philox4 words = philox(p.seed, decision / 4, position, p.epoch, layer);
  return uniform(words.at[decision % 4]) >= drop;
}

Tensor dropout(const Values& inp, const StepParams& p, int B, int elements, int group,
               uint32_t layer, float drop) {
  Tensor out(inp.size());
  for (int b = 0; b < B; ++b)
    for (int e = 0; e < elements; ++e) {
      const size_t i = at(b, elements, e);
      if (kept(uint32_t(e / group), b, layer, drop, p))
        out[i] = drop == 0 ? Tracked(inp[i])
                           : Tracked(inp[i]) * (Tracked(1) / (Tracked(1) - Tracked(drop)));
    }
  return out;
}

}  // namespace bv::test::oracle
