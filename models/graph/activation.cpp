#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor linear_gelu(Graph& g, const std::string& name, Tensor inp, int N, WeightInit init) {
  const Tensor h = linear(g, name, inp, {.N = N, .init = init, .bias = false});
  const Parameter bias = g.parameter(name + ".bias", {N}, init.bias_init, init.scale);
  const Tensor out = g.tensor(name + " gelu", g.info(h).shape);
  g.share_grad(h, out);  // backward works in place
  const RowsShape shape = rows_shape(g, h);

  const auto forward = [=](const Context& r) {
    r.run(
        BiasGeluForward{.out = r.at(out), .inp = r.at(h), .bias = r.weight(bias), .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(BiasGeluBackward{.dinp = r.grad(h),
                           .dbias = r.dweight(bias),
                           .dout = r.grad(out),
                           .inp = r.at(h),
                           .bias = r.weight(bias),
                           .shape = shape});
  };
  g.add({name + " gelu", "gelu", forward, backward});
  return out;
}

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
