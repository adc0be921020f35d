#include <algorithm>
#include <cmath>

#include "tests/kernels/oracle.h"

namespace bv::test::oracle {
namespace {

struct Moments {
  Tracked mean, variance;
};

// Of one channel over parts of the same size.
Moments merged(const Values& moments, int parts, int C, int c) {
  const auto at = [&](int part, int which) {
    return Tracked(moments[(size_t(part) * 2 + which) * C + c]);
  };
  Tracked mean = 0, within = 0, between = 0;
  for (int part = 0; part < parts; ++part) mean += at(part, 0), within += at(part, 1);
  mean = mean / Tracked(parts);
  for (int part = 0; part < parts; ++part) {
    const Tracked off = at(part, 0) - mean;
    between += off * off;
  }
  return {mean, within / Tracked(parts) + between / Tracked(parts)};
}

Tracked rstd_of(Tracked variance, double eps) { return Tracked(1) / sqrt(variance + Tracked(eps)); }

// Of Op, BatchNormForward or BatchNormEvaluate, the last step.
template <class Op>
Tracked normalised(double inp, const double* residual, Tracked mean, Tracked rstd, double weight,
                   double bias, const Op& o) {
  Tracked y = (Tracked(inp) - mean) * (rstd * Tracked(weight)) + Tracked(bias);
  if (residual) y += Tracked(*residual);
  if (o.relu && y.value < 0) y.value = 0;
  return y;
}

// kernels.h fixes how y is computed, since its sign decides: so here, too, in fp32.
bool positive(const BatchNormSaved& s, size_t i, size_t c) {
  const float scale = float(s.rstd[c]) * float(s.weight[c]);
  return std::fma(float(s.inp[i]) - float(s.mean[c]), scale, float(s.bias[c])) > 0;
}

Tracked xhat(const BatchNormSaved& s, size_t i, size_t c) {
  return (Tracked(s.inp[i]) - Tracked(s.mean[c])) * Tracked(s.rstd[c]);
}

}  // namespace

// What fp32 may make of n rows with mean m, variance v and a largest deviation d from m: the sums of
// x itself, or of x less any row's, whose n partial sums grow up to n (|m| + d); likewise of squares
// less a row's, up to n (v + d^2); in merging, twice sqrt(v / n) times the rounding of a mean; and
// the square of the mean's own error. Squares of x itself, far from zero, are in none of it.
Tensor column_moments(const Values& inp, int rows, int C) {
  constexpr double rr = Tracked::rounding * Tracked::rounding;
  const double n = rows, growth = (n + 1) / 3;
  Tensor moments(2 * size_t(C));
  for (size_t c = 0; c < size_t(C); ++c) {
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = c; i < inp.size(); i += C) sum += inp[i];
    const double m = sum / n;
    for (size_t i = c; i < inp.size(); i += C) {
      const double square = (inp[i] - m) * (inp[i] - m);
      squares += square, largest = std::max(largest, square);
    }
    const double v = squares / n;
    const double of_mean = rr * (growth * (m * m + largest) + m * m);
    const double of_squares = rr * (growth * (v + largest) * (v + largest) + 4 * m * m * v / n);
    moments[c] = {m, of_mean}, moments[C + c] = {v, of_squares + 3 * of_mean * of_mean};
  }
  return moments;
}

Tensor merged_moments(const Values& moments, int parts, int C) {
  Tensor both(2 * size_t(C));
  for (int c = 0; c < C; ++c) {
    const Moments m = merged(moments, parts, C, c);
    both[c] = m.mean, both[C + c] = m.variance;
  }
  return both;
}

BatchNormResult batchnorm_forward(const Values& inp, const Values& residual, const Values& moments,
                                  const Values& weight, const Values& bias,
                                  const Values& running_mean, const Values& running_var,
                                  const BatchNormForward& o) {
  const size_t C = size_t(o.shape.C);
  BatchNormResult r{Tensor(inp.size()), Tensor(C), Tensor(C), Tensor(running_mean.size()),
                    Tensor(running_var.size())};
  const Tensor both = merged_moments(moments, o.parts, o.shape.C);
  for (size_t c = 0; c < C; ++c) {
    const Tracked mean = both[c], variance = both[C + c];
    r.mean[c] = mean, r.rstd[c] = rstd_of(variance, o.eps);
    for (size_t i = c; i < inp.size(); i += C)
      r.out[i] = normalised(inp[i], residual.empty() ? nullptr : &residual[i], mean, r.rstd[c],
                            weight[c], bias[c], o);
    if (running_mean.empty()) continue;
    const Tracked momentum = o.momentum, rest = Tracked(1) - momentum;
    const double n = double(o.shape.rows) * o.parts;
    const Tracked unbiased = Tracked(n) / Tracked(n - 1) * variance;
    const bool finite = std::isfinite(mean.value) && std::isfinite(variance.value);
    r.running_mean[c] =
        finite ? rest * Tracked(running_mean[c]) + momentum * mean : running_mean[c];
    r.running_var[c] =
        finite ? rest * Tracked(running_var[c]) + momentum * unbiased : running_var[c];
  }
  return r;
}

Tensor batchnorm_evaluate(const Values& inp, const Values& residual, const Values& running_mean,
                          const Values& running_var, const Values& weight, const Values& bias,
                          const BatchNormEvaluate& o) {
  Tensor out(inp.size());
  for (size_t i = 0; i < inp.size(); ++i) {
    const size_t c = i % size_t(o.shape.C);
    out[i] = normalised(inp[i], residual.empty() ? nullptr : &residual[i], running_mean[c],
                        rstd_of(running_var[c], o.eps), weight[c], bias[c], o);
  }
  return out;
}

BatchNormSums batchnorm_backward_sums(const Values& dout, const Values& out,
                                      const BatchNormSaved& s, const BatchNormBackwardSums& o) {
  BatchNormSums sums{Tensor(size_t(o.shape.C)), Tensor(size_t(o.shape.C)), Tensor(dout.size())};
  for (size_t i = 0; i < dout.size(); ++i) {
    const size_t c = i % size_t(o.shape.C);
    if (o.relu && !(out.empty() ? positive(s, i, c) : out[i] > 0)) continue;
    sums.g[i] = dout[i];
    sums.dbias[c] += sums.g[i];
    sums.dweight[c] += sums.g[i] * xhat(s, i, c);
  }
  return sums;
}

Tensor batchnorm_backward(const Values& sums, const Values& dout, const BatchNormSaved& s,
                          const BatchNormBackward& o) {
  Tensor dinp(dout.size());
  const size_t C = size_t(o.shape.C);
  const Tracked n = double(o.shape.rows) * o.parts;
  for (size_t i = 0; i < dout.size(); ++i) {
    const size_t c = i % C;
    const Tracked g = o.relu && !positive(s, i, c) ? 0 : dout[i];
    const Tracked off = Tracked(sums[c]) / n + xhat(s, i, c) * (Tracked(sums[C + c]) / n);
    dinp[i] = Tracked(s.weight[c]) * Tracked(s.rstd[c]) * (g - off);
  }
  return dinp;
}

}  // namespace bv::test::oracle
