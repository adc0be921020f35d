// Max pool and average pool: the oracle, its gradients against finite differences, and the cases.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct MaxPoolResult {
  Tensor out;
  std::vector<uint8_t> index;
};

// Calls f(window, tap, element) for every tap inside the image: flat indices into out, into the
// window (r R + s) and into inp, window by window.
template <class F>
void each_tap(const PoolShape& shape, F f) {
  const auto [N, H, W, C, R, stride, padding] = shape;
  const int P = shape.P(), Q = shape.Q();
  for (int n = 0; n < N; ++n)
    for (int p = 0; p < P; ++p)
      for (int q = 0; q < Q; ++q)
        for (int c = 0; c < C; ++c)
          for (int tap = 0; tap < R * R; ++tap) {
            const int h = p * stride - padding + tap / R, w = q * stride - padding + tap % R;
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            f(((size_t(n) * P + p) * Q + q) * C + c, tap, ((size_t(n) * H + h) * W + w) * C + c);
          }
}

MaxPoolResult max_pool_forward(const Values& inp, const PoolShape& s) {
  constexpr uint8_t none = 255;
  const auto count = size_t(s.out_count());
  MaxPoolResult r{Tensor(count), std::vector<uint8_t>(count, none)};
  each_tap(s, [&](size_t window, int tap, size_t element) {
    const double x = inp[element], best = r.out[window].value;
    if (r.index[window] != none && (std::isnan(best) || !(x > best || std::isnan(x)))) return;
    r.out[window] = x;
    r.index[window] = uint8_t(tap);
  });
  return r;
}

Tensor max_pool_backward(const Values& dout, const std::vector<uint8_t>& index,
                         const PoolShape& s) {
  Tensor dinp(size_t(s.inp_count()));
  each_tap(s, [&](size_t window, int tap, size_t element) {
    if (index[window] == tap) dinp[element] += Tracked(dout[window]);
  });
  return dinp;
}

Tensor average_pool_forward(const Values& inp, const PositionsShape& s) {
  const auto [N, positions, C] = s;
  Tensor out(size_t(N) * C);
  for (size_t i = 0; i < inp.size(); ++i)
    out[i / (size_t(positions) * C) * C + i % C] += Tracked(inp[i]);
  for (Tracked& sum : out) sum = sum / Tracked(positions);
  return out;
}

Tensor average_pool_backward(const Values& dout, const PositionsShape& s) {
  const auto [N, positions, C] = s;
  Tensor dinp(size_t(N) * positions * C);
  for (size_t i = 0; i < dinp.size(); ++i)
    dinp[i] = Tracked(dout[i / (size_t(positions) * C) * C + i % C]) / Tracked(positions);
  return dinp;
}

// ---- the oracle's gradients ---------------------------------------------------------------------
TEST(Oracle, MaxPool) {
  for (const int R : {1, 2, 3})
    for (const int stride : {1, 2, 3})
      for (int padding = 0; padding <= R / 2; ++padding) {
        TestValues random(10);
        const PoolShape s{2, 5, 7, 3, R, stride, padding};
        Values inp = random.normal(size_t(s.inp_count()));
        const MaxPoolResult r = max_pool_forward(inp, s);
        const Values dout = random.normal(r.out.size());
        check_gradient("inp", inp, max_pool_backward(dout, r.index, s),
                       [&] { return dot(dout, max_pool_forward(inp, s).out); });
      }
}

TEST(Oracle, MaxPoolTakesTheFirstOfEqualsAndNaNBeforeAll) {
  PoolShape s{.N = 1, .H = 2, .W = 3, .C = 1, .R = 2, .stride = 1};
  const MaxPoolResult r = max_pool_forward({4, 1, NAN, 4, 4, NAN}, s);
  EXPECT_EQ(r.out[0].value, 4);
  EXPECT_TRUE(std::isnan(r.out[1].value));
  EXPECT_EQ(r.index, (std::vector<uint8_t>{0, 1}));
  s.padding = 1;
  EXPECT_EQ(max_pool_forward({4, 1, NAN, 4, 4, NAN}, s).index,
            (std::vector<uint8_t>{3, 2, 3, 2, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(Oracle, AveragePool) {
  TestValues random(11);
  const PositionsShape s{.N = 2, .positions = 6, .C = 5};
  Values inp = random.normal(size_t(s.N) * s.positions * s.C);
  const Values dout = random.normal(size_t(s.N) * s.C);
  check_gradient("inp", inp, average_pool_backward(dout, s),
                 [&] { return dot(dout, average_pool_forward(inp, s)); });
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
bool fits(const PoolShape& s) {
  return s.padding <= s.R / 2 && s.H + 2 * s.padding >= s.R && s.W + 2 * s.padding >= s.R;
}
std::string name_of(const PoolShape& s) {
  return sizes({{"N", s.N}, {"H", s.H}, {"W", s.W}, {"C", s.C}}) +
         sizes({{"R", s.R}, {"stride", s.stride}, {"padding", s.padding}});
}

// `equals` and `nans` draw from a few values, so that many elements are equal.
enum class Kind { normal, equals, nans };

Values elements(Problem& p, size_t n, Kind kind) {
  if (kind == Kind::normal) return p.data(n);
  const double of[] = {-0.0, 0, 1, kind == Kind::nans ? NAN : -INFINITY, INFINITY, -INFINITY};
  Values values(n);
  // The larger values are rare, or no other would ever win.
  for (double& v : values) v = of[p.random.below(8) ? 3 * p.random.below(2) : p.random.below(6)];
  return values;
}

// Compares a tensor that may hold NaN, which fails every tolerance.
std::string compare_with_nans(const std::byte* after, const Values& expected, DType dtype) {
  const Values actual = decode(Bytes(after, after + expected.size() * size_of(dtype)), dtype);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))))
      return "element " + std::to_string(i) + " is " + std::to_string(actual[i]) + ", not " +
             std::to_string(expected[i]);
  return "";
}

Problem max_pool_forward(DType dtype, PoolShape s, Kind kind) {
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values inp = elements(p, size_t(s.inp_count()), kind);
  const oracle::MaxPoolResult r = oracle::max_pool_forward(inp, s);
  if (kind == Kind::nans)
    p.changed_objects<std::byte>("out", Bytes(r.out.size() * size_of(dtype), std::byte{0x35}),
                                 [=, expected = values_of(r.out)](const std::byte* after) {
                                   return compare_with_nans(after, expected, dtype);
                                 });
  else
    p.output("out", {s.N, s.P(), s.Q(), s.C}, r.out);
  p.changed_objects<uint8_t>(
      "index", std::vector<uint8_t>(r.index.size(), 0xEE), [index = r.index](const uint8_t* after) {
        for (size_t i = 0; i < index.size(); ++i)
          if (after[i] != index[i])
            return "element " + std::to_string(i) + " is " + std::to_string(after[i]) + ", not " +
                   std::to_string(index[i]);
        return std::string();
      });
  p.input("inp", {s.N, s.H, s.W, s.C}, inp);
  p.runs(MaxPoolForward{.shape = s, .dtype = dtype});
  return p;
}

Problem max_pool_backward(DType dtype, PoolShape s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  // Normal numbers: neighbouring windows often have the same maximum.
  const oracle::MaxPoolResult r =
      oracle::max_pool_forward(p.random.normal(size_t(s.inp_count())), s);
  const Values dout = p.data(r.index.size());
  p.output("dinp", {s.N, s.H, s.W, s.C}, oracle::max_pool_backward(dout, r.index, s));
  p.input("dout", {s.N, s.P(), s.Q(), s.C}, dout);
  p.objects("index", r.index);
  p.runs(MaxPoolBackward{.shape = s, .dtype = dtype});
  return p;
}

Problem average_pool_forward(DType dtype, PositionsShape s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values inp = p.data(size_t(s.N) * s.positions * s.C);
  p.output("out", {s.N, s.C}, oracle::average_pool_forward(inp, s));
  p.input("inp", {s.N, s.positions, s.C}, inp);
  p.runs(AveragePoolForward{.shape = s, .dtype = dtype});
  return p;
}

Problem average_pool_backward(DType dtype, PositionsShape s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values dout = p.data(size_t(s.N) * s.C);
  p.output("dinp", {s.N, s.positions, s.C}, oracle::average_pool_backward(dout, s));
  p.input("dout", {s.N, s.C}, dout);
  p.runs(AveragePoolBackward{.shape = s, .dtype = dtype});
  return p;
}

KernelCases pool_cases() {
  KernelCases cases;
  const auto add_forward = [&](const PoolShape& s, Kind kind) {
    const char* kinds[] = {"", "_equals", "_nans"};
    cases.add("max_pool_forward" + name_of(s) + kinds[int(kind)], max_pool_forward, s, kind);
  };
  const auto add_backward = [&](const PoolShape& s, bool exact) {
    cases.add("max_pool_backward" + name_of(s) + flag(exact, "exact"), max_pool_backward, s, exact);
  };
  const auto add_average = [&](const PositionsShape& s) {
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
        for (PoolShape s :
             {PoolShape{2, 7, 15, 5}, {1, 15, 2, 17}, {3, 1, 1, 3}, {2, 2, 7, 64}, {1, 7, 1, 1}}) {
          s.R = R, s.stride = stride, s.padding = padding;
          if (!fits(s)) continue;
          add_forward(s, Kind::equals);
          add_backward(s, true);
        }
  const PoolShape stem{2, 16, 16, 64, 3, 2, 1};
  for (const PoolShape& s : {stem,
                             PoolShape{1, 15, 15, 17, 3, 2, 1},
                             {1, 9, 6, 24, 5, 2, 2},
                             {1, 20, 17, 4, 16, 3, 8},
                             {1, 56, 56, 64, 3, 2, 1}}) {
    for (const Kind kind : {Kind::normal, Kind::equals, Kind::nans}) add_forward(s, kind);
    for (const bool exact : {false, true}) add_backward(s, exact);
  }
  for (const PositionsShape& s : {PositionsShape{1, 1, 1},
                                  {3, 4, 5},
                                  {2, 49, 17},
                                  {5, 2, 64},
                                  {2, 33, 200},
                                  {3, 1, 512},
                                  {2, 49, 2048}})
    add_average(s);

  cases.begin_sweep();
  for (const int C : sweep_of_sizes()) {
    const PoolShape s{2, 5, 6, C, 3, 2, 1};
    add_forward(s, Kind::normal), add_backward(s, false);
    add_average({2, 7, C});
  }
  for (const int H : {1, 2, 7, 15})
    for (const int W : {1, 2, 7, 15})
      for (const int C : {1, 3, 5, 8, 17, 64})
        for (const int R : {1, 2, 3, 4})
          for (const int stride : {1, 2, 3, 5})
            for (const int padding : {0, 1, 2})
              if (const PoolShape s{2, H, W, C, R, stride, padding}; fits(s))
                add_forward(s, Kind::nans), add_backward(s, false);
  return cases;
}

[[maybe_unused]] const bool added = add_cases(pool_cases());

template <class Op>
bool refuses_windows() {
  using R = Refusal<Op>;
  return refuses<Op>({
      {"R", [](Op& o) { o.shape.R = 17, o.shape.H = o.shape.W = 40; }},
      {"padding", [](Op& o) { o.shape.padding = -1; }},
      {"padding", [](Op& o) { o.shape.padding = o.shape.R / 2 + 1; }},
      {"smaller than R", [](Op& o) { o.shape.R = 3, o.shape.padding = 0, o.shape.H = 2; }},
      {"smaller than R", [](Op& o) { o.shape.R = 3, o.shape.padding = 0, o.shape.W = 2; }},
      {"N", [](Op& o) { o.shape.N = 65536; }, R::gpu},
      {"stride", [](Op& o) { o.shape.stride = 65536; }, R::gpu},
      {"2^30", [](Op& o) { o.shape.H = o.shape.W = 1 << 15, o.shape.C = 2; }, R::gpu},
  });
}
template <class Op>
bool refuses_images() {
  return refuses<Op>(
      {{"2^30", [](Op& o) { o.shape.positions = o.shape.C = 1 << 16; }, Refusal<Op>::gpu}});
}
[[maybe_unused]] const bool refused =
    refuses_windows<MaxPoolForward>() && refuses_windows<MaxPoolBackward>() &&
    refuses_images<AveragePoolForward>() && refuses_images<AveragePoolBackward>();

}  // namespace
}  // namespace bv::test
