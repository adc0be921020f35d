#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor attention(Graph& g, const std::string& name, Tensor qkv, int heads, float drop,
                 int queries) {
  const int C = dim(g, qkv, 2) / 3, N = dim(g, qkv, 1);
  const AttentionShape shape{
      .B = dim(g, qkv, 0), .N = N, .H = heads, .D = C / heads, .Q = queries ? queries : N};
  const Tensor out = g.tensor(name, tokens_shape(shape.B, shape.Q, C));
  const Tensor lse = g.tensor(name + " lse", {shape.B, heads, shape.Q}, DType::fp32);
  g.grad(qkv);
  const uint32_t layer = layer_number(g);

  const auto forward = [=](const Context& r) {
    r.run(AttentionForward{.out = r.at(out),
                           .lse = r.floats(lse),
                           .qkv = r.at(qkv),
                           .shape = shape,
                           .layer = layer,
                           .drop = r.training ? drop : 0});
  };
  const auto backward = [=](const Context& r) {
    r.run(AttentionBackward{.dqkv = r.grad(qkv),
                            .dout = r.grad(out),
                            .qkv = r.at(qkv),
                            .out = r.at(out),
                            .lse = r.floats(lse),
                            .shape = shape,
                            .layer = layer,
                            .drop = drop});
  };
  g.add({name, "attention", forward, backward});
  return out;
}

}  // namespace bv
