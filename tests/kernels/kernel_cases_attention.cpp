#include <cmath>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

using oracle::AttentionSizes;

// Queries and keys `scale` times a normal's: with 1, softmax is spread; with 8, almost one key has
// it all, and scores reach hundreds. With a negative scale all queries are positive and all keys
// negative, so that of keys that aren't there, whose score is 0, exp(0 - lse) is infinite.
Values projections(Problem& p, const AttentionSizes& s, double scale) {
  Values qkv = p.random.normal(size_t(s.B) * s.N * 3 * s.H * s.D, 0, std::abs(scale));
  for (size_t i = 0; scale < 0 && i < qkv.size(); ++i) {
    const size_t part = i / (size_t(s.H) * s.D) % 3;
    if (part < 2) qkv[i] = part == 0 ? std::abs(qkv[i]) : -std::abs(qkv[i]);
  }
  return p.held(qkv);
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
                            .shape = {s.B, s.N, s.H, s.D},
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
                             .shape = {s.B, s.N, s.H, s.D},
                             .layer = s.layer,
                             .drop = s.drop,
                             .dtype = dtype});
  };
  return p;
}

// The GPU's kernels are made for three head dims.
bool cpu_only(int D) { return D != 32 && D != 64 && D != 128; }

void add(std::vector<KernelCase>& cases, AttentionSizes s, double scale, bool test_all = false) {
  s.layer = 5;
  s.params = {.seed = 0x123456789ABCDEFu, .epoch = 3, .position = 70};
  const std::string name = sizes({{"B", s.B}, {"N", s.N}, {"H", s.H}, {"D", s.D}}) +
                           (s.drop > 0 ? sizes({{"dropout", int(100 * s.drop + 0.5f)}}) : "") +
                           flag(scale > 1, "peaked") + flag(scale < 0, "opposed");
  const auto add_pass = [&](const char* pass, auto problem) {
    cases.push_back(
        {pass + name, [=](DType t) { return problem(t, s, scale); }, cpu_only(s.D), test_all});
  };
  add_pass("attention_forward", forward);
  add_pass("attention_backward", backward);
}

}  // namespace

std::vector<KernelCase> attention_cases() {
  std::vector<KernelCase> cases;
  for (const int N : {1, 2, 5, 16, 17, 63, 64, 65, 197})
    for (const int D : {8, 16, 32, 64, 128})
      add(cases, {.B = N < 63 ? 2 : 1, .N = N, .H = N < 63 || D == 64 ? 3 : 1, .D = D}, 1);
  for (const int D : {16, 32, 64, 128})
    for (const int N : {1, 5, 17, 65}) {
      add(cases, {.B = 2, .N = N, .H = 3, .D = D, .drop = 0.3f}, 1);
      add(cases, {.B = 1, .N = N, .H = 2, .D = D}, 8);
      add(cases, {.B = 1, .N = N, .H = 2, .D = D}, -8);
    }
  add(cases, {.B = 1, .N = 197, .H = 1, .D = 64, .drop = 0.1f}, 1);
  add(cases, {.B = 4, .N = 150, .H = 3, .D = 64}, 1);  // a block takes all queries of a head
  // More keys than a tile of scores may hold.
  add(cases, {.B = 1, .N = 257, .H = 1, .D = 8}, 1);
  add(cases, {.B = 1, .N = 257, .H = 1, .D = 128}, 1);
  add(cases, {.B = 1, .N = 300, .H = 1, .D = 16, .drop = 0.2f}, 1);
  add(cases, {.B = 1, .N = 300, .H = 1, .D = 32, .drop = 0.2f}, 1);
  add(cases, {.B = 1, .N = 300, .H = 2, .D = 16}, 8);
  add(cases, {.B = 1, .N = 300, .H = 1, .D = 64}, 8);
  add(cases, {.B = 1, .N = 577, .H = 1, .D = 24}, 1);
  add(cases, {.B = 1, .N = 577, .H = 1, .D = 64}, 1);  // 384 pixels
  add(cases, {.B = 3, .N = 50, .H = 7, .D = 8}, 1);
  add(cases, {.B = 3, .N = 50, .H = 7, .D = 32}, 1);
  add(cases, {.B = 1, .N = 7, .H = 2, .D = 16, .drop = 1}, 1);  // nothing is left
  add(cases, {.B = 1, .N = 7, .H = 2, .D = 64, .drop = 1}, 1);
  add(cases, {.B = 1, .N = 33, .H = 16, .D = 64}, 1);  // ViT-L's heads

  // Every remainder of every tile.
  for (const int D : {32, 64, 128}) {
    for (int N = 1; N <= 136; ++N)
      for (const float drop : {0.0f, 0.25f})
        if (N % 16 < 3 || N % 16 > 13 || N < 40)
          add(cases, {.B = 1, .N = N, .H = 1, .D = D, .drop = drop}, 2, true);
    for (const int N : {191, 192, 193, 255, 256, 384, 512, 785, 1025})
      add(cases, {.B = 1, .N = N, .H = 1, .D = D}, 1, true);
    add(cases, {.B = 5, .N = 197, .H = 4, .D = D, .drop = 0.1f}, 1, true);
  }
  return cases;
}

}  // namespace bv::test
