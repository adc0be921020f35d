// Class token and position embedding; the class token's row.
#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct EmbedGradient {
  Tensor dpatches, dclass_token, dposition;
};

Tensor embed_forward(const Values& patches, const Values& class_token, const Values& position,
                     EmbedShape shape) {
  const auto [B, P, C] = shape;
  Tensor out(size_t(B) * (1 + P) * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const Tracked token = t == 0 ? class_token[c] : patches[at(b * P + t - 1, C, c)];
        out[at(b * (1 + P) + t, C, c)] = token + position[at(t, C, c)];
      }
  return out;
}

EmbedGradient embed_backward(const Values& dout, EmbedShape shape) {
  const auto [B, P, C] = shape;
  EmbedGradient g{Tensor(size_t(B) * P * C), Tensor(C), Tensor(size_t(1 + P) * C)};
  for (int b = 0; b < B; ++b)
    for (int t = 0; t <= P; ++t)
      for (int c = 0; c < C; ++c) {
        const double d = dout[at(b * (1 + P) + t, C, c)];
        g.dposition[at(t, C, c)] += d;
        if (t == 0)
          g.dclass_token[c] += d;
        else
          g.dpatches[at(b * P + t - 1, C, c)] = d;
      }
  return g;
}

Tensor class_token_forward(const Values& inp, TokensShape shape) {
  const auto [B, N, C] = shape;
  Tensor out(size_t(B) * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) out[at(b, C, c)] = inp[at(b * N, C, c)];
  return out;
}

Tensor class_token_backward(const Values& dout, TokensShape shape) {
  const auto [B, N, C] = shape;
  Tensor dinp(size_t(B) * N * C);
  for (int b = 0; b < B; ++b)
    for (int c = 0; c < C; ++c) dinp[at(b * N, C, c)] = dout[at(b, C, c)];
  return dinp;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, Embed) {
  TestValues random(5);
  const EmbedShape shape{3, 4, 5};
  Values patches = random.normal(3 * 4 * 5), token = random.normal(5),
         position = random.normal(5 * 5);
  const Values dout = random.normal(3 * 5 * 5);
  const auto loss = [&] {
    return dot(dout, oracle::embed_forward(patches, token, position, shape));
  };
  const oracle::EmbedGradient g = oracle::embed_backward(dout, shape);
  check_gradient("patches", patches, g.dpatches, loss);
  check_gradient("class_token", token, g.dclass_token, loss);
  check_gradient("position", position, g.dposition, loss);
}

TEST(Oracle, ClassToken) {
  TestValues random(6);
  const TokensShape shape{2, 3, 5};
  Values inp = random.normal(2 * 3 * 5);
  const Values dout = random.normal(2 * 5);
  check_gradient("inp", inp, oracle::class_token_backward(dout, shape),
                 [&] { return dot(dout, oracle::class_token_forward(inp, shape)); });
}

// ---- cases --------------------------------------------------------------------------------------
Problem embed_forward(DType dtype, EmbedShape shape, bool exact) {
  const auto [B, P, C] = shape;
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values patches = p.data(size_t(B) * P * C), token = p.data_fp32(C),
               position = p.data_fp32(size_t(1 + P) * C);
  p.output("out", {B, 1 + P, C}, oracle::embed_forward(patches, token, position, shape));
  p.input("patches", {B, P, C}, patches);
  p.input_fp32("class_token", {C}, token), p.input_fp32("position", {1 + P, C}, position);
  p.runs(EmbedForward{.shape = shape, .dtype = dtype});
  return p;
}

Problem embed_backward(DType dtype, EmbedShape shape, bool accumulate, bool exact) {
  const auto [B, P, C] = shape;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(B) * (1 + P) * C);
  const oracle::EmbedGradient g = oracle::embed_backward(dout, shape);
  p.output("dpatches", {B, P, C}, g.dpatches);
  p.gradient("dclass_token", {C}, g.dclass_token, accumulate);
  p.gradient("dposition", {1 + P, C}, g.dposition, accumulate);
  p.input("dout", {B, 1 + P, C}, dout);
  p.runs(EmbedBackward{.shape = shape, .dtype = dtype, .accumulate = accumulate});
  return p;
}

Problem class_token_forward(DType dtype, TokensShape shape) {
  const auto [B, N, C] = shape;
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values inp = p.data(size_t(B) * N * C);
  p.output("out", {B, C}, oracle::class_token_forward(inp, shape));
  p.input("inp", {B, N, C}, inp);
  p.runs(ClassTokenForward{.shape = shape, .dtype = dtype});
  return p;
}

Problem class_token_backward(DType dtype, TokensShape shape) {
  const auto [B, N, C] = shape;
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values dout = p.data(size_t(B) * C);
  p.output("dinp", {B, N, C}, oracle::class_token_backward(dout, shape));
  p.input("dout", {B, C}, dout);
  p.runs(ClassTokenBackward{.shape = shape, .dtype = dtype});
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
  for (const TokensShape s : {TokensShape{1, 1, 1}, {2, 5, 7}, {5, 17, 33}, {2, 197, 192}}) {
    const std::string name = sizes({{"B", s.B}, {"N", s.N}, {"C", s.C}});
    cases.add("class_token_forward" + name, class_token_forward, s);
    cases.add("class_token_backward" + name, class_token_backward, s);
  }
  cases.begin_sweep();
  for (const int n : sweep_of_sizes()) add_embed({4, 7, n});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(embed_cases());

}  // namespace
}  // namespace bv::test
