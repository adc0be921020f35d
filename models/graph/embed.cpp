#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {
namespace {

TokensShape tokens_shape(const Graph& g, Tensor tokens) {
  return {.B = dim(g, tokens, 0), .N = dim(g, tokens, 1), .C = dim(g, tokens, 2)};
}

}  // namespace

Tensor embed_tokens(Graph& g, Tensor patches, bool distilled) {
  const EmbedShape shape{.B = dim(g, patches, 0),
                         .P = dim(g, patches, 1),
                         .C = dim(g, patches, 2),
                         .prefix = distilled ? 2 : 1};
  const int N = shape.prefix + shape.P;
  const Tensor out = g.tensor("embed", {shape.B, N, shape.C});
  const auto token = [&](const char* name, float deviation) {
    return g.in_fp32(g.parameter(name, {1, 1, shape.C}, Init::normal, deviation));
  };
  const Parameter class_token = token("cls_token", 1e-6f);
  const Parameter dist_token = distilled ? token("dist_token", .02f) : Parameter{};
  const Parameter position =
      g.in_fp32(g.parameter("pos_embed", {1, N, shape.C}, Init::normal, .02f));
  g.grad(patches);

  const auto forward = [=](const Context& r) {
    r.run(EmbedForward{.out = r.at(out),
                       .patches = r.at(patches),
                       .class_token = r.master(class_token),
                       .dist_token = dist_token ? r.master(dist_token) : nullptr,
                       .position = r.master(position),
                       .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(EmbedBackward{.dpatches = r.grad(patches),
                        .dclass_token = r.dweight(class_token),
                        .ddist_token = r.dweight(dist_token),
                        .dposition = r.dweight(position),
                        .dout = r.grad(out),
                        .shape = shape});
  };
  g.add({"embed", "embed", forward, backward});
  return out;
}

TwoTokens split_tokens(Graph& g, const std::string& name, Tensor tokens) {
  const TokensShape first = tokens_shape(g, tokens);
  TokensShape second = first;
  second.first = 1;
  const TwoTokens out{g.tensor(name + " class", {first.B, first.C}),
                      g.tensor(name + " dist", {first.B, first.C})};
  g.grad(tokens);

  const auto forward = [=](const Context& r) {
    const void* inp = r.at(tokens);
    r.run(TakeTokensForward{.out = r.at(out.class_token), .inp = inp, .shape = first});
    r.run(TakeTokensForward{.out = r.at(out.dist_token), .inp = inp, .shape = second});
  };
  const auto backward = [=](const Context& r) {
    void* dinp = r.grad(tokens);
    r.run(TakeTokensBackward{.dinp = dinp, .dout = r.grad(out.class_token), .shape = first});
    r.run(TakeTokensBackward{.dinp = dinp, .dout = r.grad(out.dist_token), .shape = second});
  };
  g.add({name, "class token", forward, backward});
  return out;
}

}  // namespace bv
