#include <cmath>

#include "tests/kernels/oracle.h"

namespace bv::test::oracle {
namespace {

// Calls f(window, tap, element) for every tap that lies in the image: in flat indices of out, of
// r R + s and of inp, window by window.
template <class Op, class F>
void each_tap(const Op& o, F f) {
  for (int n = 0; n < o.shape.N; ++n)
    for (int p = 0; p < o.shape.P(); ++p)
      for (int q = 0; q < o.shape.Q(); ++q)
        for (int c = 0; c < o.shape.C; ++c)
          for (int tap = 0; tap < o.shape.R * o.shape.R; ++tap) {
            const int h = p * o.shape.stride - o.shape.padding + tap / o.shape.R;
            const int w = q * o.shape.stride - o.shape.padding + tap % o.shape.R;
            if (h < 0 || h >= o.shape.H || w < 0 || w >= o.shape.W) continue;
            f(((size_t(n) * o.shape.P() + p) * o.shape.Q() + q) * o.shape.C + c, tap,
              ((size_t(n) * o.shape.H + h) * o.shape.W + w) * o.shape.C + c);
          }
}

}  // namespace

MaxPoolResult max_pool_forward(const Values& inp, const MaxPoolForward& o) {
  constexpr uint8_t none = 255;
  const size_t count = size_t(o.shape.N) * o.shape.P() * o.shape.Q() * o.shape.C;
  MaxPoolResult r{Tensor(count), std::vector<uint8_t>(count, none)};
  each_tap(o, [&](size_t window, int tap, size_t element) {
    const double x = inp[element], best = r.out[window].value;
    if (r.index[window] != none && (std::isnan(best) || !(x > best || std::isnan(x)))) return;
    r.out[window] = x;
    r.index[window] = uint8_t(tap);
  });
  return r;
}

Tensor max_pool_backward(const Values& dout, const std::vector<uint8_t>& index,
                         const MaxPoolBackward& o) {
  Tensor dinp(size_t(o.shape.N) * o.shape.H * o.shape.W * o.shape.C);
  each_tap(o, [&](size_t window, int tap, size_t element) {
    if (index[window] == tap) dinp[element] += Tracked(dout[window]);
  });
  return dinp;
}

Tensor average_pool_forward(const Values& inp, int N, int positions, int C) {
  Tensor out(size_t(N) * C);
  for (int n = 0; n < N; ++n)
    for (int c = 0; c < C; ++c) {
      Tracked sum = 0;
      for (int i = 0; i < positions; ++i) sum += Tracked(inp[(size_t(n) * positions + i) * C + c]);
      out[size_t(n) * C + c] = sum / Tracked(positions);
    }
  return out;
}

Tensor average_pool_backward(const Values& dout, int N, int positions, int C) {
  Tensor dinp(size_t(N) * positions * C);
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < positions; ++i)
      for (int c = 0; c < C; ++c)
        dinp[(size_t(n) * positions + i) * C + c] =
            Tracked(dout[size_t(n) * C + c]) / Tracked(positions);
  return dinp;
}

Tensor scale(const Values& data, double factor) {
  Tensor out;
  for (const double x : data) out.push_back(Tracked(x) * Tracked(factor));
  return out;
}

}  // namespace bv::test::oracle
