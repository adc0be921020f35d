#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

GeluOut linear_gelu(Graph& g, const std::string& name, Tensor inp, int N, WeightInit init) {
  const auto [rows, C] = rows_shape(g, inp);
  const LinearShape shape{.M = rows, .N = N, .K = C};
  std::vector<int64_t> dims = g.info(inp).shape;
  dims.back() = N;
  const Tensor h = g.tensor(name, dims), out = g.tensor(name + " gelu", dims);
  // The bias first, as its gradient is made first.
  const Parameter bias = g.parameter(name + ".bias", {N}, init.bias_init, init.scale);
  const Parameter weight = g.parameter(name + ".weight", {N, shape.K}, init.init, init.scale, true);
  g.grad(inp);
  g.share_grad(h, out);  // backward works in place

  const auto forward = [=](const Context& r) {
    r.run(LinearGeluForward{.out = r.at(out),
                            .h = r.training ? r.at(h) : nullptr,
                            .inp = r.at(inp),
                            .weight = r.weight(weight),
                            .bias = r.weight(bias),
                            .shape = shape});
  };
  const auto rest = [=](const Context& r) {
    r.run(LinearBackward{
        .weight = {.dweight = r.dweight(weight),
                   .dbias = nullptr,
                   .dout = r.grad(h),
                   .inp = r.at(inp),
                   .shape = shape},
        .input = {
            .dinp = r.grad(inp), .dout = r.grad(h), .weight = r.weight(weight), .shape = shape}});
  };
  const auto backward = [=](const Context& r) {
    r.run(BiasGeluBackward{.dinp = r.grad(h),
                           .dbias = r.dweight(bias),
                           .dout = r.grad(out),
                           .inp = r.at(h),
                           .bias = r.weight(bias),
                           .shape = {.rows = rows, .C = N}});
    rest(r);
  };
  g.add(
      {.name = name, .type = "linear gelu", .forward = forward, .backward = backward, .layers = 2});
  GeluOut made = out;
  made.node = static_cast<int>(g.nodes().size()) - 1;
  made.backward_rest = rest;
  made.backward_first = [=](const Context& r, GeluLinearBackward op) {
    op.input.dinp = r.grad(h);
    op.input.dgelu_bias = r.dweight(bias);
    op.input.h = r.at(h);
    op.input.gelu_bias = r.weight(bias);
    r.run(op);
  };
  return made;
}

}  // namespace bv
