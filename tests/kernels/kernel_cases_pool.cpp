// Max pool, average pool, scaling.
#include <cmath>

#include "tests/kernels/kernel_cases.h"
#include "tests/numerics/format.h"

namespace bv::test {
namespace {

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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           AveragePoolForward{.out = a.at("out"),
                              .inp = a.at("inp"),
                              .shape = {s.N, s.positions, s.C},
                              .dtype = dtype});
  };
  return p;
}

Problem average_pool_backward(DType dtype, Average s, bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values dout = p.data(size_t(s.N) * s.C);
  p.output("dinp", {s.N, s.positions, s.C},
           oracle::average_pool_backward(dout, s.N, s.positions, s.C));
  p.input("dout", {s.N, s.C}, dout);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           AveragePoolBackward{.dinp = a.at("dinp"),
                               .dout = a.at("dout"),
                               .shape = {s.N, s.positions, s.C},
                               .dtype = dtype});
  };
  return p;
}

Problem scale(DType dtype, int count, float factor) {
  Problem p(dtype);
  p.any_threads = true;
  const Values data = p.data_fp32(size_t(count));
  p.output_fp32("data", {count}, oracle::scale(data, factor), data);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a, Scale{.data = a.at<float>("data"), .count = size_t(count), .factor = factor});
  };
  return p;
}

}  // namespace

std::vector<KernelCase> pool_cases() {
  std::vector<KernelCase> cases;
  const auto add_forward = [&](Window s, Kind kind) {
    const char* kinds[] = {"", "_equals", "_nans"};
    cases.push_back({"max_pool_forward" + s.name() + kinds[int(kind)],
                     [=](DType t) { return max_pool_forward(t, s, kind); }});
  };
  const auto add_backward = [&](Window s, bool exact) {
    cases.push_back({"max_pool_backward" + s.name() + flag(exact, "exact"),
                     [=](DType t) { return max_pool_backward(t, s, exact); }});
  };
  const auto add_average = [&](Average s) {
    for (const bool exact : {false, true}) {
      const std::string name =
          sizes({{"N", s.N}, {"positions", s.positions}, {"C", s.C}}) + flag(exact, "exact");
      cases.push_back({"average_pool_forward" + name,
                       [=](DType t) { return average_pool_forward(t, s, exact); }});
      cases.push_back({"average_pool_backward" + name,
                       [=](DType t) { return average_pool_backward(t, s, exact); }});
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
  for (const int count : {1, 3, 64, 1027, 40000})
    for (const float factor : {0.0f, 1.0f / 3, 0.5f})
      cases.push_back({"scale" + sizes({{"count", count}, {"percent", int(100 * factor)}}),
                       [=](DType t) { return scale(t, count, factor); }});

  const size_t usual = cases.size();
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
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test
