#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor embed_tokens(Graph& g, Tensor patches) {
  const EmbedShape shape{.B = dim(g, patches, 0), .P = dim(g, patches, 1), .C = dim(g, patches, 2)};
  const Tensor out = g.tensor("embed", {shape.B, 1 + shape.P, shape.C});
  const Parameter class_token = g.parameter("cls_token", {1, 1, shape.C}, Init::normal, 1e-6f);
  const Parameter position =
      g.parameter("pos_embed", {1, 1 + shape.P, shape.C}, Init::normal, .02f);
  g.grad(patches);

  const auto forward = [=](const Context& r) {
    r.run(EmbedForward{.out = r.at(out),
                       .patches = r.at(patches),
                       .class_token = r.master(class_token),
                       .position = r.master(position),
                       .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(EmbedBackward{.dpatches = r.grad(patches),
                        .dclass_token = r.dweight(class_token),
                        .dposition = r.dweight(position),
                        .dout = r.grad(out),
                        .shape = shape});
  };
  g.add({"embed", "embed", forward, backward});
  return out;
}

Tensor take_class_token(Graph& g, const std::string& name, Tensor tokens) {
  const TokensShape shape{.B = dim(g, tokens, 0), .N = dim(g, tokens, 1), .C = dim(g, tokens, 2)};
  const Tensor out = g.tensor(name, {shape.B, shape.C});
  g.grad(tokens);

  const auto forward = [=](const Context& r) {
    r.run(ClassTokenForward{.out = r.at(out), .inp = r.at(tokens), .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(ClassTokenBackward{.dinp = r.grad(tokens), .dout = r.grad(out), .shape = shape});
  };
  g.add({name, "class token", forward, backward});
  return out;
}

}  // namespace bv
