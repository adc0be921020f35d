#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

struct Sizes {
  int M, N, K;
};

Problem forward(DType dtype, Sizes s, bool with_bias, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values inp = p.data(size_t(M) * K), weight = p.data(size_t(N) * K);
  const Values bias = with_bias ? p.data(N) : Values{};
  p.output("out", {M, N}, oracle::linear_forward(inp, weight, bias, M, N, K));
  p.input("inp", {M, K}, inp), p.input("weight", {N, K}, weight);
  if (with_bias) p.input("bias", {N}, bias);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           LinearForward{.out = a.at("out"),
                         .inp = a.at("inp"),
                         .weight = a.at("weight"),
                         .bias = a.optional("bias"),
                         .shape = {s.M, s.N, s.K},
                         .dtype = dtype});
  };
  return p;
}

Problem backward_input(DType dtype, Sizes s, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), weight = p.data(size_t(N) * K);
  p.output("dinp", {M, K}, oracle::linear_backward_input(dout, weight, M, N, K));
  p.input("dout", {M, N}, dout), p.input("weight", {N, K}, weight);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           LinearBackwardInput{.dinp = a.at("dinp"),
                               .dout = a.at("dout"),
                               .weight = a.at("weight"),
                               .shape = {s.M, s.N, s.K},
                               .dtype = dtype});
  };
  return p;
}

Problem backward_weight(DType dtype, Sizes s, bool with_bias, bool accumulate, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), inp = p.data(size_t(M) * K);
  oracle::LinearGradient g = oracle::linear_backward_weight(dout, inp, M, N, K);
  p.gradient("dweight", {N, K}, g.dweight, accumulate);
  if (with_bias) p.gradient("dbias", {N}, g.dbias, accumulate);
  p.input("dout", {M, N}, dout), p.input("inp", {M, K}, inp);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           LinearBackwardWeight{.dweight = a.at<float>("dweight"),
                                .dbias = a.optional<float>("dbias"),
                                .dout = a.at("dout"),
                                .inp = a.at("inp"),
                                .shape = {s.M, s.N, s.K},
                                .dtype = dtype,
                                .accumulate = accumulate});
  };
  return p;
}

}  // namespace

std::vector<KernelCase> linear_cases() {
  std::vector<KernelCase> cases;
  const auto add = [&](Sizes s) {
    const std::string name = sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}});
    const bool large = double(s.M) * s.N * s.K > 1e6;
    for (const bool exact : {false, true}) {
      const std::string kind = flag(exact, "exact");
      cases.push_back({"linear_backward_input" + name + kind,
                       [=](DType t) { return backward_input(t, s, exact); }});
      for (const bool bias : {true, false}) {
        if (large && exact && !bias) continue;
        const std::string which = name + flag(!bias, "nobias") + kind;
        cases.push_back(
            {"linear_forward" + which, [=](DType t) { return forward(t, s, bias, exact); }});
        for (const bool accumulate : {false, true})
          if (!large || accumulate == bias)
            cases.push_back(
                {"linear_backward_weight" + which + flag(accumulate, "accumulate"),
                 [=](DType t) { return backward_weight(t, s, bias, accumulate, exact); }});
      }
    }
  };
  // The last ones: a head, ViT-Tiny's qkv, projection and second layer of its MLP, ViT-L's tokens.
  for (const Sizes s : {Sizes{1, 1, 1},
                        {3, 5, 7},
                        {2, 1, 31},
                        {1, 127, 3},
                        {17, 33, 65},
                        {64, 48, 32},
                        {1501, 24, 17},
                        {1, 1000, 192},
                        {197, 576, 192},
                        {197, 192, 192},
                        {197, 192, 768},
                        {5, 1024, 1024}})
    add(s);
  const size_t usual = cases.size();
  for (const int M : {1, 2, 8, 9, 33})
    for (const int N : {1, 2, 8, 9, 33})
      for (const int K : {2, 7, 8, 16, 33}) add({M, N, K});
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test
