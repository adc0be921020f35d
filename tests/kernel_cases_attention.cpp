#include "tests/kernel_cases.h"

namespace bv {
namespace {

using oracle::AttentionSizes;

// Queries and keys `scale` times a normal's: with 1, softmax is spread; with 8, almost one key has
// it all, and scores reach hundreds.
Values projections(Problem& p, const AttentionSizes& s, double scale) {
  return p.held(p.random.normal(size_t(s.B) * s.N * 3 * s.H * s.D, 0, scale));
}

Problem forward(DType dtype, AttentionSizes s, double scale) {
  Problem p(dtype);
  s.dtype = dtype;
  const Values qkv = projections(p, s, scale);
  oracle::AttentionResult r = oracle::attention_forward(qkv, s);
  p.output("out", {s.B, s.N, s.H, s.D}, r.out);
  p.output_fp32("lse", {s.B, s.H, s.N}, r.lse);
  p.input("qkv", {s.B, s.N, 3, s.H, s.D}, qkv);
  p.objects<StepParams>("params", {s.params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           AttentionForward{.out = a.at("out"),
                            .lse = a.at<float>("lse"),
                            .qkv = a.at("qkv"),
                            .params = a.at<StepParams>("params"),
                            .B = s.B,
                            .N = s.N,
                            .H = s.H,
                            .D = s.D,
                            .layer = s.layer,
                            .drop = s.drop,
                            .dtype = dtype});
  };
  return p;
}

Problem backward(DType dtype, AttentionSizes s, double scale) {
  Problem p(dtype);
  s.dtype = dtype;
  const Values qkv = projections(p, s, scale);
  const Values dout = p.data(size_t(s.B) * s.N * s.H * s.D);
  const oracle::AttentionResult r = oracle::attention_forward(qkv, s);
  const Values out = p.held(rounded(r.out)), lse = rounded(r.lse);
  p.output("dqkv", {s.B, s.N, 3, s.H, s.D}, oracle::attention_backward(dout, qkv, out, lse, s));
  p.input("dout", {s.B, s.N, s.H, s.D}, dout), p.input("out", {s.B, s.N, s.H, s.D}, out);
  p.input("qkv", {s.B, s.N, 3, s.H, s.D}, qkv);
  p.input_fp32("lse", {s.B, s.H, s.N}, lse);
  p.objects<StepParams>("params", {s.params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           AttentionBackward{.dqkv = a.at("dqkv"),
                             .dout = a.at("dout"),
                             .qkv = a.at("qkv"),
                             .out = a.at("out"),
                             .lse = a.at<float>("lse"),
                             .params = a.at<StepParams>("params"),
                             .B = s.B,
                             .N = s.N,
                             .H = s.H,
                             .D = s.D,
                             .layer = s.layer,
                             .drop = s.drop,
                             .dtype = dtype});
  };
  return p;
}

void add(std::vector<KernelCase>& cases, AttentionSizes s, double scale) {
  s.layer = 5;
  s.params = {.seed = 0x123456789ABCDEFu, .epoch = 3, .position = 70};
  const std::string name = sizes({{"B", s.B}, {"N", s.N}, {"H", s.H}, {"D", s.D}}) +
                           (s.drop > 0 ? sizes({{"dropout", int(100 * s.drop + 0.5f)}}) : "") +
                           flag(scale > 1, "peaked");
  cases.push_back({"attention_forward" + name, [=](DType t) { return forward(t, s, scale); }});
  cases.push_back({"attention_backward" + name, [=](DType t) { return backward(t, s, scale); }});
}

}  // namespace

std::vector<KernelCase> attention_cases() {
  std::vector<KernelCase> cases;
  for (const int N : {1, 2, 5, 17, 65, 197})
    for (const int D : {8, 16, 32, 64, 128})
      add(cases, {.B = N < 65 ? 2 : 1, .N = N, .H = N < 65 || D == 64 ? 3 : 1, .D = D}, 1);
  for (const int D : {16, 64})
    for (const int N : {1, 5, 17, 65}) {
      add(cases, {.B = 2, .N = N, .H = 3, .D = D, .drop = 0.3f}, 1);
      add(cases, {.B = 1, .N = N, .H = 2, .D = D}, 8);
    }
  add(cases, {.B = 1, .N = 197, .H = 1, .D = 64, .drop = 0.1f}, 1);
  // More keys than a tile of scores may hold.
  add(cases, {.B = 1, .N = 257, .H = 1, .D = 8}, 1);
  add(cases, {.B = 1, .N = 300, .H = 1, .D = 16, .drop = 0.2f}, 1);
  add(cases, {.B = 1, .N = 300, .H = 2, .D = 16}, 8);
  add(cases, {.B = 1, .N = 577, .H = 1, .D = 24}, 1);
  add(cases, {.B = 3, .N = 50, .H = 7, .D = 8}, 1);
  add(cases, {.B = 1, .N = 7, .H = 2, .D = 16, .drop = 1}, 1);  // nothing is left
  add(cases, {.B = 1, .N = 33, .H = 16, .D = 64}, 1);           // ViT-L's heads
  return cases;
}

}  // namespace bv
