#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

struct MaxPoolResult {
  Tensor out;
  std::vector<uint8_t> index;
};

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

void check_max_pool(int R, int stride, int padding) {
  TestValues random(10);
  MaxPoolForward s{};
  s.shape = {2, 5, 7, 3, R, stride, padding};
  MaxPoolBackward back{};
  back.shape = s.shape;
  Values inp = random.normal(size_t(s.shape.inp_count()));
  const MaxPoolResult r = max_pool_forward(inp, s);
  const Values dout = random.normal(r.out.size());
  check_gradient("inp", inp, max_pool_backward(dout, r.index, back),
                 [&] { return dot(dout, max_pool_forward(inp, s).out); });
}

TEST(Oracle, MaxPool) {
  for (const int R : {1, 2, 3})
    for (const int stride : {1, 2, 3})
      for (int padding = 0; padding <= R / 2; ++padding) check_max_pool(R, stride, padding);
}

TEST(Oracle, MaxPoolTakesTheFirstOfEqualsAndNaNBeforeAll) {
  MaxPoolForward s{};
  s.shape = {.N = 1, .H = 2, .W = 3, .C = 1, .R = 2, .stride = 1};
  const MaxPoolResult r = max_pool_forward({4, 1, NAN, 4, 4, NAN}, s);
  EXPECT_EQ(r.out[0].value, 4);
  EXPECT_TRUE(std::isnan(r.out[1].value));
  EXPECT_EQ(r.index, (std::vector<uint8_t>{0, 1}));
  s.shape.padding = 1;
  EXPECT_EQ(max_pool_forward({4, 1, NAN, 4, 4, NAN}, s).index,
            (std::vector<uint8_t>{3, 2, 3, 2, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(Oracle, AveragePool) {
  TestValues random(11);
  const int N = 2, positions = 6, C = 5;
  Values inp = random.normal(N * positions * C);
  const Values dout = random.normal(N * C);
  check_gradient("inp", inp, average_pool_backward(dout, N, positions, C),
                 [&] { return dot(dout, average_pool_forward(inp, N, positions, C)); });
}

}  // namespace oracle

struct Window {
  int N, H, W, C, R, stride, padding;

  bool fits() const { return padding <= R / 2 && H + 2 * padding >= R && W + 2 * padding >= R; }
  std::string name() const {
    return sizes({{"N", N}, {"H", H}, {"W", W}, {"C", C}}) +
           sizes({{"R", R}, {"stride", stride}, {"padding", padding}});
  }
  template <class Op>
  Op op(DType dtype) const {
    Op o{};
    o.shape = {N, H, W, C, R, stride, padding}, o.dtype = dtype;
    return o;
  }
};

// What the elements are: of few, so that many are equal.
enum class Kind { normal, equals, nans };

Values elements(Problem& p, size_t n, Kind kind) {
  if (kind == Kind::normal) return p.data(n);
  const double of[] = {-0.0, 0, 1, kind == Kind::nans ? NAN : -INFINITY, INFINITY, -INFINITY};
  Values values(n);
  // Rarely the larger ones, or they alone would come out.
  for (double& v : values) v = of[p.random.below(8) ? 3 * p.random.below(2) : p.random.below(6)];
  return values;
}

// Bytes of a tensor that may hold NaN, which no tolerance admits.
std::string compare_with_nans(const std::byte* after, const Values& expected, DType dtype) {
  const Values actual = decode(Bytes(after, after + expected.size() * size_of(dtype)), dtype);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))))
      return "element " + std::to_string(i) + " is " + std::to_string(actual[i]) + ", not " +
             std::to_string(expected[i]);
  return "";
}

Problem max_pool_forward(DType dtype, Window s, Kind kind) {
  Problem p(dtype);
  p.exact = p.any_threads = true;
  auto op = s.op<MaxPoolForward>(dtype);
  const int P = op.shape.P(), Q = op.shape.Q();
  const Values inp = elements(p, size_t(s.N) * s.H * s.W * s.C, kind);
  const oracle::MaxPoolResult r = oracle::max_pool_forward(inp, op);
  if (kind == Kind::nans) {
    Values expected;
    for (const Tracked& e : r.out) expected.push_back(e.value);
    p.changed_objects<std::byte>(
        "out", Bytes(expected.size() * size_of(dtype), std::byte{0x35}),
        [=](const std::byte* after) { return compare_with_nans(after, expected, dtype); });
  } else {
    p.output("out", {s.N, P, Q, s.C}, r.out);
  }
  p.changed_objects<uint8_t>(
      "index", std::vector<uint8_t>(r.index.size(), 0xEE), [index = r.index](const uint8_t* after) {
        for (size_t i = 0; i < index.size(); ++i)
          if (after[i] != index[i])
            return "element " + std::to_string(i) + " is " + std::to_string(after[i]) + ", not " +
                   std::to_string(index[i]);
        return std::string();
      });
  p.input("inp", {s.N, s.H, s.W, s.C}, inp);
  p.run = [=](Kernels& k, DeviceArguments& a) mutable {
    op.out = a.at("out"), op.index = a.at<uint8_t>("index"), op.inp = a.at("inp");
    launch(k, a, op);
  };
  return p;
}

Problem max_pool_backward(DType dtype, Window s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  auto op = s.op<MaxPoolBackward>(dtype);
  const int P = op.shape.P(), Q = op.shape.Q();
  // Of normal numbers, so that neighbouring windows often take the same element.
  const oracle::MaxPoolResult r = oracle::max_pool_forward(
      p.random.normal(size_t(s.N) * s.H * s.W * s.C), s.op<MaxPoolForward>(dtype));
  const Values dout = p.data(r.index.size());
  p.output("dinp", {s.N, s.H, s.W, s.C}, oracle::max_pool_backward(dout, r.index, op));
  p.input("dout", {s.N, P, Q, s.C}, dout);
  p.objects("index", r.index);
  p.run = [=](Kernels& k, DeviceArguments& a) mutable {
    op.dinp = a.at("dinp"), op.dout = a.at("dout"), op.index = a.at<uint8_t>("index");
    launch(k, a, op);
  };
  return p;
}

struct Average {
  int N, positions, C;
};

Problem average_pool_forward(DType dtype, Average s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values inp = p.data(size_t(s.N) * s.positions * s.C);
  p.output("out", {s.N, s.C}, oracle::average_pool_forward(inp, s.N, s.positions, s.C));
  p.input("inp", {s.N, s.positions, s.C}, inp);
  p.runs(AveragePoolForward{.shape = {s.N, s.positions, s.C}, .dtype = dtype});
  return p;
}

Problem average_pool_backward(DType dtype, Average s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values dout = p.data(size_t(s.N) * s.C);
  p.output("dinp", {s.N, s.positions, s.C},
           oracle::average_pool_backward(dout, s.N, s.positions, s.C));
  p.input("dout", {s.N, s.C}, dout);
  p.runs(AveragePoolBackward{.shape = {s.N, s.positions, s.C}, .dtype = dtype});
  return p;
}

KernelCases pool_cases() {
  KernelCases cases;
  const auto add_forward = [&](Window s, Kind kind) {
    const char* kinds[] = {"", "_equals", "_nans"};
    cases.add("max_pool_forward" + s.name() + kinds[int(kind)], max_pool_forward, s, kind);
  };
  const auto add_backward = [&](Window s, bool exact) {
    cases.add("max_pool_backward" + s.name() + flag(exact, "exact"), max_pool_backward, s, exact);
  };
  const auto add_average = [&](Average s) {
    for (const bool exact : {false, true}) {
      const std::string name =
          sizes({{"N", s.N}, {"positions", s.positions}, {"C", s.C}}) + flag(exact, "exact");
      cases.add("average_pool_forward" + name, average_pool_forward, s, exact);
      cases.add("average_pool_backward" + name, average_pool_backward, s, exact);
    }
  };
  for (const int R : {1, 2, 3})
    for (const int stride : {1, 2, 3})
      for (const int padding : {0, 1})
        for (Window s :
             {Window{2, 7, 15, 5}, {1, 15, 2, 17}, {3, 1, 1, 3}, {2, 2, 7, 64}, {1, 7, 1, 1}}) {
          s.R = R, s.stride = stride, s.padding = padding;
          if (!s.fits()) continue;
          add_forward(s, Kind::equals);
          add_backward(s, true);
        }
  const Window stem{2, 16, 16, 64, 3, 2, 1};
  for (const Window& s : {stem,
                          Window{1, 15, 15, 17, 3, 2, 1},
                          {1, 9, 6, 24, 5, 2, 2},
                          {1, 20, 17, 4, 16, 3, 8},
                          {1, 56, 56, 64, 3, 2, 1}}) {
    for (const Kind kind : {Kind::normal, Kind::equals, Kind::nans}) add_forward(s, kind);
    for (const bool exact : {false, true}) add_backward(s, exact);
  }
  for (const Average s : {Average{1, 1, 1},
                          {3, 4, 5},
                          {2, 49, 17},
                          {5, 2, 64},
                          {2, 33, 200},
                          {3, 1, 512},
                          {2, 49, 2048}})
    add_average(s);

  cases.begin_sweep();
  for (const int C : sweep_of_sizes()) {
    const Window s{2, 5, 6, C, 3, 2, 1};
    add_forward(s, Kind::normal), add_backward(s, false);
    add_average({2, 7, C});
  }
  for (const int H : {1, 2, 7, 15})
    for (const int W : {1, 2, 7, 15})
      for (const int C : {1, 3, 5, 8, 17, 64})
        for (const int R : {1, 2, 3, 4})
          for (const int stride : {1, 2, 3, 5})
            for (const int padding : {0, 1, 2})
              if (const Window s{2, H, W, C, R, stride, padding}; s.fits())
                add_forward(s, Kind::nans), add_backward(s, false);
  return cases;
}

[[maybe_unused]] const bool added = add_cases(pool_cases());

}  // namespace
}  // namespace bv::test
