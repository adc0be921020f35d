#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

// Forward in place; backward into another buffer, since the gradient that it reads may be shared.
Tensor dropout(Graph& g, const std::string& name, Tensor inp, float drop, bool whole_images) {
  if (drop <= 0) return inp;
  const TensorInfo& from = g.info(inp);
  const int B = dim(g, inp, 0);
  const int elements = rows_of(from) / B * static_cast<int>(from.shape.back());
  const Tensor out = g.same_memory(inp, name);
  g.grad(inp);

  const auto op = [shape = DropoutShape{B, elements, whole_images ? elements : 1},
                   layer = layer_number(g), drop,
                   dtype = g.dtype()](const Context& r, void* out, const void* inp) {
    return Dropout{.out = out,
                   .inp = inp,
                   .params = r.params,
                   .shape = shape,
                   .layer = layer,
                   .drop = drop,
                   .dtype = dtype};
  };
  const auto forward = [=](const Context& r) {
    if (r.training) r.run(op(r, r.at(out), r.at(inp)));
  };
  const auto backward = [=](const Context& r) { r.run(op(r, r.grad(inp), r.grad(out))); };
  g.add({name, "dropout", forward, backward});
  return out;
}

}  // namespace bv
