#include <utility>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

LinearOut linear(Graph& g, const std::string& name, const LinearInput& from,
                 const LinearOptions& o) {
  const Tensor inp = from.out;
  const auto [rows, C] = rows_shape(g, inp);
  const LinearShape shape{.M = rows, .N = o.N, .K = C};
  std::vector<int64_t> dims = g.info(inp).shape;
  dims.back() = o.N;
  const Tensor out = g.tensor(name, dims);
  const Parameter weight =
      g.parameter(name + ".weight",
                  o.weight_shape.empty() ? std::vector<int64_t>{shape.N, shape.K} : o.weight_shape,
                  o.init.init, o.init.scale, true);
  const Parameter bias =
      o.bias ? g.parameter(name + ".bias", {o.N}, o.init.bias_init, o.init.scale) : Parameter{};
  if (o.input_grad) g.grad(inp);

  const auto forward = [=](const Context& r) {
    r.run(LinearForward{.out = r.at(out),
                        .inp = r.at(inp),
                        .weight = r.weight(weight),
                        .bias = r.weight(bias),
                        .shape = shape});
  };
  const auto of_weight = [=](const Context& r) {
    return LinearBackwardWeight{.dweight = r.dweight(weight),
                                .dbias = r.dweight(bias),
                                .dout = r.grad(out),
                                .inp = r.at(inp),
                                .shape = shape};
  };
  const auto backward = [=, input_grad = o.input_grad](const Context& r) {
    if (!input_grad) return r.run(of_weight(r));
    r.run(LinearBackward{
        .weight = of_weight(r),
        .input = {
            .dinp = r.grad(inp), .dout = r.grad(out), .weight = r.weight(weight), .shape = shape}});
  };
  Node node{name, "linear", forward, backward};
  if (from.of_last_node(g)) {
    node.fused_backward = [=, both = from.backward_first](const Context& r) {
      both(r, {.weight = of_weight(r),
               .input = {.dout = r.grad(out), .weight = r.weight(weight), .shape = shape}});
    };
    node.fused_previous = from.backward_rest;
    node.fused_middle = from.backward_rest_fused;
  }
  LinearOut made = out;
  made.node = static_cast<int>(g.nodes().size());
  made.forward_with = [=](const Context& r, LinearNormForward op) {
    op.inp = r.at(inp);
    op.weight = r.weight(weight);
    op.bias = r.weight(bias);
    op.shape = shape;
    r.run(op);
  };
  g.add(std::move(node));
  return made;
}

}  // namespace bv
