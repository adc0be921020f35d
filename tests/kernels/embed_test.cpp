#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

struct EmbedGradient {
  Tensor dpatches, dclass_token, dposition;
};

Tensor embed_forward(const Values& patches, const Values& class_token, const Values& position,
                     int B, int P, int C) {
  Tensor out(size_t(B) * (1 + P) * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const double token = t == 0 ? class_token[c] : patches[at(b * P + t - 1, C, c)];
        out[at(b * (1 + P) + t, C, c)] = Tracked(token) + Tracked(position[at(t, C, c)]);
      }
  return out;
}

EmbedGradient embed_backward(const Values& dout, int B, int P, int C) {
  EmbedGradient g{Tensor(size_t(B) * P * C), Tensor(C), Tensor(size_t(1 + P) * C)};
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const Tracked d = dout[at(b * (1 + P) + t, C, c)];
        g.dposition[at(t, C, c)] += d;
        if (t == 0)
          g.dclass_token[c] += d;
        else
          g.dpatches[at(b * P + t - 1, C, c)] = d;
      }
  return g;
}

Tensor class_token_forward(const Values& inp, int B, int N, int C) {
  Tensor out(size_t(B) * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) out[at(b, C, c)] = inp[at(b * N, C, c)];
  return out;
}

Tensor class_token_backward(const Values& dout, int B, int N, int C) {
  Tensor dinp(size_t(B) * N * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) dinp[at(b * N, C, c)] = dout[at(b, C, c)];
  return dinp;
}

TEST(Oracle, Embed) {
  TestValues random(5);
  const int B = 3, P = 4, C = 5;
  Values patches = random.normal(B * P * C), token = random.normal(C),
         position = random.normal((1 + P) * C);
  const Values dout = random.normal(B * (1 + P) * C);
  const auto loss = [&] { return dot(dout, embed_forward(patches, token, position, B, P, C)); };
  const EmbedGradient g = embed_backward(dout, B, P, C);
  check_gradient("patches", patches, g.dpatches, loss);
  check_gradient("class_token", token, g.dclass_token, loss);
  check_gradient("position", position, g.dposition, loss);
}

TEST(Oracle, ClassToken) {
  TestValues random(6);
  const int B = 2, N = 3, C = 5;
  Values inp = random.normal(B * N * C);
  const Values dout = random.normal(B * C);
  check_gradient("inp", inp, class_token_backward(dout, B, N, C),
                 [&] { return dot(dout, class_token_forward(inp, B, N, C)); });
}

}  // namespace oracle

Problem embed_forward(DType dtype, EmbedShape s, bool exact) {
  const auto [B, P, C] = s;
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values patches = p.data(size_t(B) * P * C), token = p.data_fp32(C),
               position = p.data_fp32(size_t(1 + P) * C);
  p.output("out", {B, 1 + P, C}, oracle::embed_forward(patches, token, position, B, P, C));
  p.input("patches", {B, P, C}, patches);
  p.input_fp32("class_token", {C}, token), p.input_fp32("position", {1 + P, C}, position);
  p.runs(EmbedForward{.shape = {s.B, s.P, s.C}, .dtype = dtype});
  return p;
}

Problem embed_backward(DType dtype, EmbedShape s, bool accumulate, bool exact) {
  const auto [B, P, C] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(B) * (1 + P) * C);
  oracle::EmbedGradient g = oracle::embed_backward(dout, B, P, C);
  p.output("dpatches", {B, P, C}, g.dpatches);
  p.gradient("dclass_token", {C}, g.dclass_token, accumulate);
  p.gradient("dposition", {1 + P, C}, g.dposition, accumulate);
  p.input("dout", {B, 1 + P, C}, dout);
  p.runs(EmbedBackward{.shape = {s.B, s.P, s.C}, .dtype = dtype, .accumulate = accumulate});
  return p;
}

Problem class_token(DType dtype, int B, int N, int C, bool backward) {
  Problem p(dtype);
  p.exact = p.any_threads = true;
  if (backward) {
    const Values dout = p.data(size_t(B) * C);
    p.output("dinp", {B, N, C}, oracle::class_token_backward(dout, B, N, C));
    p.input("dout", {B, C}, dout);
    p.runs(ClassTokenBackward{.shape = {B, N, C}, .dtype = dtype});
    return p;
  }
  const Values inp = p.data(size_t(B) * N * C);
  p.output("out", {B, C}, oracle::class_token_forward(inp, B, N, C));
  p.input("inp", {B, N, C}, inp);
  p.runs(ClassTokenForward{.shape = {B, N, C}, .dtype = dtype});
  return p;
}

KernelCases embed_cases() {
  KernelCases cases;
  const auto add_embed = [&](EmbedShape s) {
    for (const bool exact : {false, true}) {
      const std::string name = sizes({{"B", s.B}, {"P", s.P}, {"C", s.C}}) + flag(exact, "exact");
      cases.add("embed_forward" + name, embed_forward, s, exact);
      for (const bool accumulate : {false, true})
        cases.add("embed_backward" + name + flag(accumulate, "accumulate"), embed_backward, s,
                  accumulate, exact);
    }
  };
  for (const EmbedShape s :
       {EmbedShape{1, 1, 1}, {2, 3, 5}, {5, 4, 33}, {65, 3, 70}, {3, 196, 192}, {1, 17, 1024}})
    add_embed(s);
  for (const auto& [B, N, C] : {EmbedShape{1, 1, 1}, {2, 5, 7}, {5, 17, 33}, {2, 197, 192}})
    for (const bool backward : {false, true})
      cases.add(std::string("class_token_") + (backward ? "backward" : "forward") +
                    sizes({{"B", B}, {"N", N}, {"C", C}}),
                class_token, B, N, C, backward);
  cases.begin_sweep();
  for (const int n : sweep_of_sizes()) add_embed({4, 7, n});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(embed_cases());

}  // namespace
}  // namespace bv::test
