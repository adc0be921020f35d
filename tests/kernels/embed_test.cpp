// Class token, distillation token and position embedding; copies of selected tokens.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct EmbedGradient {
  Tensor dpatches, dtokens[2], dposition;
};

// tokens: the class token, the distillation token.
Tensor embed_forward(const Values& patches, const Values (&tokens)[2], const Values& position,
                     EmbedShape shape) {
  const auto [B, P, C, prefix] = shape;
  Tensor out(size_t(B) * (prefix + P) * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t < prefix + P; ++t)
      for (int c = 0; c < C; ++c) {
        const Tracked token = t < prefix ? tokens[t][c] : patches[at(b * P + t - prefix, C, c)];
        out[at(b * (prefix + P) + t, C, c)] = token + position[at(t, C, c)];
      }
  return out;
}

EmbedGradient embed_backward(const Values& dout, EmbedShape shape) {
  const auto [B, P, C, prefix] = shape;
  EmbedGradient g{
      Tensor(size_t(B) * P * C), {Tensor(C), Tensor(C)}, Tensor(size_t(prefix + P) * C)};
  for (int b = 0; b < B; ++b)
    for (int t = 0; t < prefix + P; ++t)
      for (int c = 0; c < C; ++c) {
        const double d = dout[at(b * (prefix + P) + t, C, c)];
        g.dposition[at(t, C, c)] += d;
        if (t < prefix)
          g.dtokens[t][c] += d;
        else
          g.dpatches[at(b * P + t - prefix, C, c)] = d;
      }
  return g;
}

Tensor take_tokens_forward(const Values& inp, TokensShape shape) {
  const auto [B, N, C, first, count] = shape;
  Tensor out(size_t(B) * count * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t < count; ++t)
      for (int c = 0; c < C; ++c) out[at(b * count + t, C, c)] = inp[at(b * N + first + t, C, c)];
  return out;
}

// before: the values that tokens before the first one keep.
Tensor take_tokens_backward(const Values& before, const Values& dout, TokensShape shape) {
  const auto [B, N, C, first, count] = shape;
  Tensor dinp(size_t(B) * N * C);
  for (int b = 0; b < B; ++b)
    for (int t = 0; t < first + count; ++t)
      for (int c = 0; c < C; ++c)
        dinp[at(b * N + t, C, c)] =
            t < first ? before[at(b * N + t, C, c)] : dout[at(b * count + t - first, C, c)];
  return dinp;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, Embed) {
  for (const int prefix : {1, 2}) {
    TestValues random(5);
    const EmbedShape shape{3, 4, 5, prefix};
    const int row = (prefix + shape.P) * shape.C;
    Values patches = random.normal(3 * 4 * 5), tokens[2] = {random.normal(5), random.normal(5)},
           position = random.normal(row);
    const Values dout = random.normal(3 * row);
    const auto loss = [&] {
      return dot(dout, oracle::embed_forward(patches, tokens, position, shape));
    };
    const oracle::EmbedGradient g = oracle::embed_backward(dout, shape);
    check_gradient("patches", patches, g.dpatches, loss);
    check_gradient("class_token", tokens[0], g.dtokens[0], loss);
    check_gradient("dist_token", tokens[1], g.dtokens[1], loss);
    check_gradient("position", position, g.dposition, loss);
  }
}

TEST(Oracle, TakeTokens) {
  TestValues random(6);
  const TokensShape shape{2, 4, 5, 1, 2};
  Values inp = random.normal(2 * 4 * 5);
  const Values dout = random.normal(2 * 2 * 5);
  check_gradient("inp", inp, oracle::take_tokens_backward(Values(2 * 4 * 5), dout, shape),
                 [&] { return dot(dout, oracle::take_tokens_forward(inp, shape)); });
}

// ---- cases --------------------------------------------------------------------------------------
Problem embed_forward(DType dtype, EmbedShape shape, bool exact) {
  const auto [B, P, C, prefix] = shape;
  const int N = prefix + P;
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values patches = p.data(size_t(B) * P * C), tokens[2] = {p.data_fp32(C), p.data_fp32(C)},
               position = p.data_fp32(size_t(N) * C);
  p.output("out", {B, N, C}, oracle::embed_forward(patches, tokens, position, shape));
  p.input("patches", {B, P, C}, patches);
  p.input_fp32("class_token", {C}, tokens[0]), p.input_fp32("position", {N, C}, position);
  if (prefix == 2) p.input_fp32("dist_token", {C}, tokens[1]);
  p.runs(EmbedForward{.shape = shape, .dtype = dtype});
  return p;
}

Problem embed_backward(DType dtype, EmbedShape shape, bool accumulate, bool exact) {
  const auto [B, P, C, prefix] = shape;
  const int N = prefix + P;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(B) * N * C);
  const oracle::EmbedGradient g = oracle::embed_backward(dout, shape);
  p.output("dpatches", {B, P, C}, g.dpatches);
  p.gradient("dclass_token", {C}, g.dtokens[0], accumulate);
  if (prefix == 2) p.gradient("ddist_token", {C}, g.dtokens[1], accumulate);
  p.gradient("dposition", {N, C}, g.dposition, accumulate);
  p.input("dout", {B, N, C}, dout);
  p.runs(EmbedBackward{.shape = shape, .dtype = dtype, .accumulate = accumulate});
  return p;
}

Problem take_tokens_forward(DType dtype, TokensShape shape) {
  const auto [B, N, C, first, count] = shape;
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values inp = p.data(size_t(B) * N * C);
  p.output("out", {B, count, C}, oracle::take_tokens_forward(inp, shape));
  p.input("inp", {B, N, C}, inp);
  p.runs(TakeTokensForward{.shape = shape, .dtype = dtype});
  return p;
}

Problem take_tokens_backward(DType dtype, TokensShape shape) {
  const auto [B, N, C, first, count] = shape;
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values before = p.data(size_t(B) * N * C), dout = p.data(size_t(B) * count * C);
  p.output("dinp", {B, N, C}, oracle::take_tokens_backward(before, dout, shape),
           first > 0 ? before : Values{});
  p.input("dout", {B, count, C}, dout);
  p.runs(TakeTokensBackward{.shape = shape, .dtype = dtype});
  return p;
}

KernelCases embed_cases() {
  KernelCases cases;
  const auto add_embed = [&](EmbedShape s) {
    for (const bool exact : {false, true}) {
      const std::string name = sizes({{"B", s.B}, {"P", s.P}, {"C", s.C}}) +
                               flag(s.prefix == 2, "distilled") + flag(exact, "exact");
      cases.add("embed_forward" + name, embed_forward, s, exact);
      for (const bool accumulate : {false, true})
        cases.add("embed_backward" + name + flag(accumulate, "accumulate"), embed_backward, s,
                  accumulate, exact);
    }
  };
  for (const EmbedShape s : {EmbedShape{1, 1, 1},
                             {2, 3, 5},
                             {5, 4, 33},
                             {65, 3, 70},
                             {3, 196, 192},
                             {1, 17, 1024},
                             {1, 1, 1, 2},
                             {5, 4, 33, 2},
                             {65, 3, 70, 2},
                             {3, 49, 192, 2}})
    add_embed(s);
  for (const TokensShape s : {TokensShape{1, 1, 1},
                              {2, 5, 7},
                              {5, 17, 33},
                              {2, 197, 192},
                              {2, 5, 7, 0, 2},
                              {5, 17, 33, 3, 2},
                              {3, 2, 192, 1, 1},
                              {2, 198, 192, 0, 2}}) {
    const std::string name = sizes({{"B", s.B}, {"N", s.N}, {"C", s.C}}) +
                             (s.first ? sizes({{"first", s.first}}) : "") +
                             (s.count > 1 ? sizes({{"count", s.count}}) : "");
    cases.add("take_tokens_forward" + name, take_tokens_forward, s);
    cases.add("take_tokens_backward" + name, take_tokens_backward, s);
  }
  cases.begin_sweep();
  for (const int n : sweep_of_sizes())
    for (const int prefix : {1, 2}) add_embed({4, 7, n, prefix});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(embed_cases());

template <class Op>
bool refuses_more_than_two() {
  return refuses<Op>({{"prefix", [](Op& op) { op.shape.prefix = 3; }}});
}
template <class Op>
bool refuses_tokens_beyond() {
  return refuses<Op>({{"first", [](Op& op) { op.shape.first = op.shape.N - op.shape.count + 1; }}});
}
[[maybe_unused]] const bool refused =
    refuses_more_than_two<EmbedForward>() && refuses_more_than_two<EmbedBackward>() &&
    refuses_tokens_beyond<TakeTokensForward>() && refuses_tokens_beyond<TakeTokensBackward>();

}  // namespace
}  // namespace bv::test
