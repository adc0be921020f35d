#include <algorithm>

#include "tests/kernels/oracle.h"

namespace bv::test::oracle {
namespace {

struct Range {
  int begin, end;
};

// What a tap of the filter joins: a pixel of out and the one of inp that it reads there, as [n, p, q]
// and [n, h, w] in one number.
struct Joined {
  int out, inp;
};

std::vector<Joined> joined_by(int r, int s, const ConvShape& o) {
  std::vector<Joined> pixels;
  for (int n = 0; n < o.N; ++n)
    for (int p = 0; p < o.P(); ++p)
      for (int q = 0; q < o.Q(); ++q) {
        const int h = p * o.stride - o.padding + r, w = q * o.stride - o.padding + s;
        if (h >= 0 && h < o.H && w >= 0 && w < o.W)
          pixels.push_back({(n * o.P() + p) * o.Q() + q, (n * o.H + h) * o.W + w});
      }
  return pixels;
}

// All products of a convolution, in rows of what lies side by side: f(element of out, begin of a row
// of inp, begin of a row of weight, length), for k and for c within its group in these ranges.
template <class F>
void each_row(const ConvShape& o, Range k_range, Range c_range, F f) {
  const int C = o.C / o.groups, K = o.K / o.groups;
  for (int r = 0; r < o.R; ++r)
    for (int s = 0; s < o.S; ++s)
      for (const Joined& pixel : joined_by(r, s, o))
        for (int k = k_range.begin; k < k_range.end; ++k)
          f(size_t(pixel.out) * o.K + k, size_t(pixel.inp) * o.C + k / K * C + c_range.begin,
            ((size_t(k) * o.R + r) * o.S + s) * C + c_range.begin, c_range.end - c_range.begin);
}

// Few enough that their weights of a tap stay in the cache.
constexpr int k_block = 16, c_block = 128;

// f(range of k) for all K, on all threads.
template <class F>
void each_range(int count, int block, F f) {
#pragma omp parallel for schedule(dynamic)
  for (int begin = 0; begin < count; begin += block)
    f(Range{begin, std::min(begin + block, count)});
}

template <class T>
std::vector<T> forward(const std::vector<T>& inp, const std::vector<T>& weight,
                       const ConvShape& o) {
  std::vector<T> out(size_t(o.out_count()));
  each_range(o.K, k_block, [&](Range k) {
    each_row(o, k, {0, o.C / o.groups}, [&](size_t at, size_t from_inp, size_t from_weight, int n) {
      const T *x = &inp[from_inp], *w = &weight[from_weight];
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int c = 0; c < n; ++c) sum += x[c] * w[c];
      out[at] += sum;
    });
  });
  return out;
}

template <class T>
std::vector<T> backward_input(const std::vector<T>& dout, const std::vector<T>& weight,
                              const ConvShape& o) {
  std::vector<T> dinp(size_t(o.inp_count()));
  each_range(o.C / o.groups, c_block, [&](Range c) {
    for (int k = 0; k < o.K; k += k_block)
      each_row(o, {k, std::min(k + k_block, o.K)}, c,
               [&](size_t at, size_t from_inp, size_t from_weight, int n) {
                 const T d = dout[at], *w = &weight[from_weight];
                 T* dx = &dinp[from_inp];
#pragma omp simd
                 for (int i = 0; i < n; ++i) dx[i] += d * w[i];
               });
  });
  return dinp;
}

template <class T>
std::vector<T> backward_weight(const std::vector<T>& dout, const std::vector<T>& inp,
                               const ConvShape& o) {
  std::vector<T> dweight(size_t(o.weight_count()));
  each_range(o.K, k_block, [&](Range k) {
    each_row(o, k, {0, o.C / o.groups}, [&](size_t at, size_t from_inp, size_t from_weight, int n) {
      const T d = dout[at], *x = &inp[from_inp];
      T* dw = &dweight[from_weight];
#pragma omp simd
      for (int c = 0; c < n; ++c) dw[c] += d * x[c];
    });
  });
  return dweight;
}

std::vector<float> squared(const Values& values) {
  std::vector<float> squares;
  squares.reserve(values.size());
  for (const double v : values) squares.push_back(float(v * v));
  return squares;
}

// A sum of n products, each product and each partial sum rounded to fp32. In what order a device
// adds isn't known; of the squares of the partial sums S_1 ... S_n, the mean over all orders is
//   (n + 1) (squares / 6 + sum^2 / 3),   squares = the sum of the squared products.
// A single order may be far from it where the sum is small: hence a half instead of the sixth, what
// it would be without knowing the sum. fp32 is enough for squares.
Tracked sum_of_products(double sum, double squares, double n) {
  constexpr double r = Tracked::rounding;
  return {sum, r * r * (squares + (n + 1) * (squares / 2 + sum * sum / 3))};
}

// How many taps reach each pixel of out, and of inp.
struct Reach {
  std::vector<int> out, inp;
};

Reach reach(const ConvShape& o) {
  Reach taps{std::vector<int>(size_t(o.N) * o.P() * o.Q()),
             std::vector<int>(size_t(o.N) * o.H * o.W)};
  for (int r = 0; r < o.R; ++r)
    for (int s = 0; s < o.S; ++s)
      for (const Joined& pixel : joined_by(r, s, o)) ++taps.out[pixel.out], ++taps.inp[pixel.inp];
  return taps;
}

}  // namespace

Tensor conv_forward(const Values& inp, const Values& weight, const ConvShape& o) {
  const Values sum = forward(inp, weight, o);
  const std::vector<float> squares = forward(squared(inp), squared(weight), o);
  const std::vector<int> taps = reach(o).out;
  Tensor out(sum.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = sum_of_products(sum[i], squares[i], double(taps[i / o.K]) * (o.C / o.groups));
  return out;
}

Tensor conv_backward_input(const Values& dout, const Values& weight, const Values& add,
                           const ConvShape& o) {
  const Values sum = backward_input(dout, weight, o);
  const std::vector<float> squares = backward_input(squared(dout), squared(weight), o);
  const std::vector<int> taps = reach(o).inp;
  Tensor dinp(sum.size());
  for (size_t i = 0; i < dinp.size(); ++i) {
    // One more number, wherever in the order.
    const double more = add.empty() ? 0 : add[i];
    dinp[i] = sum_of_products(sum[i] + more, squares[i] + more * more,
                              double(taps[i / o.C]) * (o.K / o.groups) + !add.empty());
  }
  return dinp;
}

Tensor conv_backward_weight(const Values& dout, const Values& inp, const ConvShape& o) {
  const Values sum = backward_weight(dout, inp, o);
  const std::vector<float> squares = backward_weight(squared(dout), squared(inp), o);
  Values pixels;  // by tap
  for (int r = 0; r < o.R; ++r)
    for (int s = 0; s < o.S; ++s) pixels.push_back(double(joined_by(r, s, o).size()));
  Tensor dweight(sum.size());
  const size_t C = size_t(o.C / o.groups);
  for (size_t i = 0; i < dweight.size(); ++i)
    dweight[i] = sum_of_products(sum[i], squares[i], pixels[i / C % pixels.size()]);
  return dweight;
}

}  // namespace bv::test::oracle
