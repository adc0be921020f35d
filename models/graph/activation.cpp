#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor tanh(Graph& g, const std::string& name, Tensor inp) {
  const Tensor out = g.same_memory(inp, name);
  g.share_grad(inp, out);
  const RowsShape shape = rows_shape(g, inp);

  const auto forward = [=](const Context& r) {
    r.run(TanhForward{.out = r.at(out), .inp = r.at(inp), .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(TanhBackward{.dinp = r.grad(inp), .dout = r.grad(out), .out = r.at(out), .shape = shape});
  };
  g.add({name, "tanh", forward, backward, true});
  return out;
}

}  // namespace bv
