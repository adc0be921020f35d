// Convolutions: all of the residual networks, and odd ones.
#include <set>

#include "tests/kernels/kernel_cases.h"
#include "tests/numerics/format.h"

namespace bv::test {
namespace {

std::string name_of(const ConvShape& s) {
  return sizes(
             {{"N", s.N}, {"H", s.H}, {"W", s.W}, {"C", s.C}, {"K", s.K}, {"R", s.R}, {"S", s.S}}) +
         sizes({{"stride", s.stride}, {"padding", s.padding}, {"groups", s.groups}});
}
Shape inp_of(const ConvShape& s) { return {s.N, s.H, s.W, s.C}; }
Shape out_of(const ConvShape& s) { return {s.N, s.P(), s.Q(), s.K}; }
Shape weight_of(const ConvShape& s) { return {s.K, s.R, s.S, s.C / s.groups}; }

// As Problem::data, but of millions of elements each is one of some thousand numbers, which is
// much faster.
Values data(Problem& p, double count, double mean = 0) {
  const size_t n = size_t(count), few = 4096;
  if (n < 4 * few) return p.data(n, mean);
  const Values numbers = p.data(few, mean);
  Values values(n);
  for (double& v : values) v = numbers[p.random.word() % few];
  return values;
}

// Of out as the device has stored it.
std::string check_moments(const DeviceArguments& a, const ConvShape& s, DType dtype) {
  const int rows = s.N * s.P() * s.Q();
  const Tensor known = oracle::column_moments(decode(a.read("out"), dtype), rows, s.K);
  Values expected, allowed;
  for (const Tracked& m : known)
    expected.push_back(m.value), allowed.push_back(tolerance(m, DType::fp32));
  const Comparison c = compare(decode(a.read("moments"), DType::fp32), expected, allowed);
  return c.ok() ? "" : "moments of out as it is stored: " + c.describe(Shape{2, s.K});
}

enum class Moments { none, wanted, of_offset };  // of_offset: of an out that is far from zero

Problem forward(DType dtype, ConvShape s, Moments moments, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const bool offset = moments == Moments::of_offset;
  const Values inp = data(p, s.inp_count(), offset ? 8 : 0);
  const Values weight = data(p, s.weight_count(), offset ? 2 : 0);
  p.output("out", out_of(s), oracle::conv_forward(inp, weight, s));
  if (moments != Moments::none) {
    p.arguments.push_back({.name = "moments",
                           .shape = {2, s.K},
                           .bytes = 2 * sizeof(float) * size_t(s.K),
                           .before = {},
                           .expected = {},
                           .check = [](auto) { return std::string(); }});  // but together with out
    p.check_together = [=](const DeviceArguments& a) { return check_moments(a, s, dtype); };
  }
  p.input("inp", inp_of(s), inp), p.input("weight", weight_of(s), weight);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           ConvForward{.out = a.at("out"),
                       .moments = a.optional<float>("moments"),
                       .inp = a.at("inp"),
                       .weight = a.at("weight"),
                       .shape = s,
                       .dtype = dtype});
  };
  return p;
}

enum class Add { none, given, in_place };

Problem backward_input(DType dtype, ConvShape s, Add with, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const Values dout = data(p, s.out_count()), weight = data(p, s.weight_count());
  const Values add = with == Add::none ? Values{} : data(p, s.inp_count());
  const bool in_place = with == Add::in_place;
  p.output("dinp", inp_of(s), oracle::conv_backward_input(dout, weight, add, s),
           in_place ? add : Values{});
  p.input("dout", out_of(s), dout), p.input("weight", weight_of(s), weight);
  if (with == Add::given) p.input("add", inp_of(s), add);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           ConvBackwardInput{.dinp = a.at("dinp"),
                             .dout = a.at("dout"),
                             .add = a.optional(in_place ? "dinp" : "add"),
                             .weight = a.at("weight"),
                             .shape = s,
                             .dtype = dtype});
  };
  return p;
}

Problem backward_weight(DType dtype, ConvShape s, bool accumulate, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const Values dout = data(p, s.out_count()), inp = data(p, s.inp_count());
  p.gradient("dweight", weight_of(s), oracle::conv_backward_weight(dout, inp, s), accumulate);
  p.input("dout", out_of(s), dout), p.input("inp", inp_of(s), inp);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           ConvBackwardWeight{.dweight = a.at<float>("dweight"),
                              .dout = a.at("dout"),
                              .inp = a.at("inp"),
                              .shape = s,
                              .dtype = dtype,
                              .accumulate = accumulate});
  };
  return p;
}

// Every distinct convolution of resnet34, resnet50 and resnext50_32x4d: C, K, R, stride, groups.
using Layer = std::array<int, 5>;
std::set<Layer> layers_of_models() {
  struct Model {
    bool bottleneck;
    int groups, width;  // of a bottleneck at 64 channels
  };
  std::set<Layer> layers{{3, 64, 7, 2, 1}};
  for (const auto [bottleneck, groups, width64] :
       {Model{false, 1, 64}, {true, 1, 64}, {true, 32, 128}}) {
    int C = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const int width = width64 << stage, K = bottleneck ? 256 << stage : width;
      for (const bool first : {true, false}) {
        const int stride = first && stage > 0 ? 2 : 1;
        if (bottleneck) {
          layers.insert({C, width, 1, 1, 1});
          layers.insert({width, width, 3, stride, groups});
          layers.insert({width, K, 1, 1, 1});
        } else {
          layers.insert({C, width, 3, stride, 1});
          layers.insert({width, K, 3, 1, 1});
        }
        if (C != K || stride != 1) layers.insert({C, K, 1, stride, 1});
        C = K;
      }
    }
  }
  return layers;
}

// Small images: what they have to show is the channels.
ConvShape shape_of(const Layer& layer) {
  const auto [C, K, R, stride, groups] = layer;
  const int H = R == 7 ? 15 : stride == 2 ? 9 : 7;
  const bool large = double(C) / groups * K * R * R > 1e5;
  return {large ? 1 : 2, H, H == 9 ? 8 : H, C, K, R, R, stride, R / 2, groups};
}

// N, H, W, C, K, R, S, stride, padding, groups.
const ConvShape odd_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},
    // few channels of the input
    {1, 7, 9, 3, 7, 3, 3, 1, 1},
    {2, 15, 7, 5, 10, 3, 3, 2, 1},
    {1, 8, 8, 17, 1, 5, 5, 1, 2},
    {1, 33, 31, 3, 64, 7, 7, 2, 3},
    {1, 15, 16, 3, 10, 7, 7, 2, 3},
    {2, 9, 7, 3, 24, 5, 5, 1, 2},
    {1, 6, 7, 3, 16, 3, 3, 1, 0},
    {1, 5, 6, 5, 40, 3, 3, 1, 1},
    {2, 6, 5, 42, 5, 3, 3, 2, 1},
    // filters that lie on padding for the most part
    {2, 1, 1, 16, 24, 3, 3, 1, 1},
    {2, 2, 2, 64, 64, 3, 3, 1, 1},
    {3, 2, 2, 8, 16, 3, 3, 2, 1},
    {2, 1, 1, 512, 512, 3, 3, 1, 1},
    {1, 5, 5, 8, 8, 1, 1, 1, 2},
    {1, 7, 7, 4, 6, 2, 4, 3, 3},
    // oblong filters and images
    {1, 1, 9, 6, 4, 1, 3, 1, 0},
    {1, 9, 5, 12, 8, 3, 1, 1, 1},
    {1, 9, 5, 16, 8, 3, 1, 1, 1},
    {2, 6, 9, 8, 24, 1, 3, 2, 1},
    {2, 15, 1, 8, 8, 1, 1, 1, 0},
    {2, 4, 5, 8, 16, 4, 5, 1, 0},
    // strides that leave out rows of the image, also at its end
    {1, 8, 10, 16, 8, 3, 3, 2, 0},
    {1, 10, 11, 3, 8, 7, 7, 3, 3},
    {1, 9, 9, 16, 16, 1, 1, 3, 0},
    {1, 13, 11, 8, 8, 2, 2, 5, 0},
    {2, 7, 8, 64, 32, 1, 1, 2, 0},
    // groups
    {2, 5, 6, 64, 32, 3, 3, 1, 1, 2},
    {1, 5, 6, 6, 4, 3, 3, 2, 1, 2},
    {1, 7, 5, 32, 32, 3, 3, 1, 1, 32},
    {1, 7, 5, 32, 64, 3, 3, 2, 1, 32},
    {2, 4, 4, 10, 15, 1, 1, 1, 0, 5},
    // around the sizes of tiles
    {1, 9, 9, 24, 72, 3, 3, 1, 1},
    {1, 7, 7, 8, 136, 3, 3, 1, 1},
    {1, 7, 7, 136, 24, 1, 1, 1, 0},
    {2, 5, 7, 200, 8, 1, 1, 1, 0},
    {1, 6, 5, 200, 136, 3, 3, 2, 1},
    {1, 4, 4, 72, 200, 3, 3, 1, 1},
    {17, 3, 3, 8, 8, 3, 3, 1, 1},
    // one tile of out, or of dinp, whose depth blocks share
    {2, 2, 2, 256, 64, 3, 3, 1, 1},
    {2, 2, 2, 64, 256, 3, 3, 1, 1},
    {1, 40, 41, 8, 16, 3, 3, 1, 1},
    {1, 65, 33, 16, 24, 1, 1, 1, 0},
    {1, 65, 33, 5, 6, 3, 3, 1, 1},
    {1, 100, 101, 8, 8, 1, 1, 1, 0},
    {1, 101, 64, 3, 8, 7, 7, 2, 3},
};

}  // namespace

std::vector<KernelCase> conv_cases() {
  std::vector<KernelCase> cases;
  const auto add_forward = [&](const ConvShape& s, Moments moments, bool exact) {
    const char* kinds[] = {"", "_moments", "_moments_offset"};
    cases.push_back({"conv_forward" + name_of(s) + kinds[int(moments)] + flag(exact, "exact"),
                     [=](DType t) { return forward(t, s, moments, exact); }});
  };
  const auto add_backward_input = [&](const ConvShape& s, Add add, bool exact) {
    const char* kinds[] = {"", "_add", "_add_in_place"};
    cases.push_back({"conv_backward_input" + name_of(s) + kinds[int(add)] + flag(exact, "exact"),
                     [=](DType t) { return backward_input(t, s, add, exact); }});
  };
  const auto add_backward_weight = [&](const ConvShape& s, bool accumulate, bool exact) {
    cases.push_back({"conv_backward_weight" + name_of(s) + flag(accumulate, "accumulate") +
                         flag(exact, "exact"),
                     [=](DType t) { return backward_weight(t, s, accumulate, exact); }});
  };
  // Each in every direction; of the options another one each time.
  int i = 0;
  const auto add_once = [&](const ConvShape& s) {
    add_forward(s, i % 2 ? Moments::none : Moments::wanted, false);
    add_backward_input(s, Add(i % 3), false);
    add_backward_weight(s, i % 2, false);
    ++i;
  };
  for (const Layer& layer : layers_of_models()) add_once(shape_of(layer));
  for (const ConvShape& s : odd_shapes) {
    add_forward(s, Moments::wanted, false);
    add_forward(s, Moments::none, true);
    add_backward_input(s, i % 2 ? Add::none : Add::given, false);
    add_backward_input(s, i % 2 ? Add::in_place : Add::none, true);
    for (const bool accumulate : {false, true})
      add_backward_weight(s, accumulate, accumulate == (i % 4 < 2));
    ++i;
  }
  // Without padding, which would make variance enough.
  for (const ConvShape& s : {ConvShape{2, 7, 7, 64, 64, 3, 3, 1, 0},
                             {1, 9, 9, 72, 40, 1, 1, 1, 0},
                             {1, 15, 15, 3, 16, 7, 7, 2, 0},
                             {2, 6, 6, 32, 32, 3, 3, 1, 0, 8},
                             {1, 65, 33, 5, 6, 1, 1, 1, 0},
                             {3, 1, 1, 5, 7, 1, 1, 1, 0}})
    add_forward(s, Moments::of_offset, false);

  // More than 8 MB, which the CPU computes in parts; like any other on a GPU, and slow on its stand-in.
  add_forward({3, 105, 106, 8, 64, 1, 1, 1, 0}, Moments::wanted, false);
  cases.back().cpu_only = true;
  add_backward_input({3, 105, 106, 64, 8, 1, 1, 1, 0}, Add::given, false);
  cases.back().cpu_only = true;

  const size_t usual = cases.size();
  // The models' layers again, with integers.
  for (const Layer& layer : layers_of_models()) {
    const ConvShape s = shape_of(layer);
    add_forward(s, Moments::wanted, true);
    add_backward_input(s, Add::given, true), add_backward_weight(s, false, true);
  }
  for (const int channels : sweep_of_sizes()) {
    if (channels > 1025) continue;
    add_once({1, 5, 6, channels, 24, 3, 3, 1, 1});
    add_once({1, 5, 6, 24, channels, 3, 3, 2, 1});
    add_once({2, 3, 3, channels, channels, 1, 1, 1, 0, channels % 2 ? 1 : 2});
    add_once({1, 15, 9, 3, channels, 7, 7, 2, 3});
  }
  TestValues random(1);
  const auto one_of = [&](std::initializer_list<int> list) {
    return list.begin()[random.below(int(list.size()))];
  };
  for (int n = 0; n < 800; ++n) {
    const bool eights = n % 2;  // channels as tensor cores want them
    const int groups = eights ? 1 : one_of({1, 2, 3, 8});
    const ConvShape s{
        .N = one_of({1, 2, 3}),
        .H = one_of({1, 2, 3, 7, 8, 15}),
        .W = one_of({1, 2, 5, 9, 16, 21}),
        .C = eights ? 8 * one_of({1, 2, 3, 5, 9, 17}) : groups * one_of({1, 3, 4, 8, 17}),
        .K = eights ? 8 * one_of({1, 2, 3, 5, 9, 17}) : groups * one_of({1, 2, 5, 8, 40}),
        .R = one_of({1, 2, 3, 5, 7}),
        .S = one_of({1, 2, 3, 5, 7}),
        .stride = one_of({1, 1, 2, 3, 4}),
        .padding = random.below(5),
        .groups = groups};
    if (s.H + 2 * s.padding >= s.R && s.W + 2 * s.padding >= s.S) add_once(s);
  }
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test
