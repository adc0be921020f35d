#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

// Forward runs in place; backward writes to its own tensor, since the gradient that it reads may be
// shared.
Tensor dropout(Graph& g, const std::string& name, Tensor inp, float drop) {
  if (drop <= 0) return inp;
  const auto [rows, C] = rows_shape(g, inp);
  const int B = dim(g, inp, 0), elements = rows / B * C;
  const Tensor out = g.same_memory(inp, name);
  g.grad(inp);

  const DropoutShape shape{B, elements};
  const auto run = [=, layer = layer_number(g)](const Context& r, void* to, const void* from) {
    r.run(Dropout{.out = to, .inp = from, .shape = shape, .layer = layer, .drop = drop});
  };
  const auto forward = [=](const Context& r) {
    if (r.training) run(r, r.at(out), r.at(inp));
  };
  const auto backward = [=](const Context& r) { run(r, r.grad(inp), r.grad(out)); };
  g.add({name, "dropout", forward, backward, true});
  return out;
}

}  // namespace bv
