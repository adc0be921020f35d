#include <utility>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

LinearInput linear_gelu(Graph& g, const std::string& name, const LinearInput& from, int N,
                        WeightInit init, float drop) {
  const Tensor inp = from.out;
  const auto [rows, C] = rows_shape(g, inp);
  const LinearShape shape{.M = rows, .N = N, .K = C};
  std::vector<int64_t> dims = g.info(inp).shape;
  dims.back() = N;
  const Tensor h = g.tensor(name, dims), out = g.tensor(name + " gelu", dims);
  // The bias precedes the weight, since backward finishes its gradient first.
  const Parameter bias = g.parameter(name + ".bias", {N}, init.bias_init, init.scale);
  const Parameter weight = g.parameter(name + ".weight", {N, shape.K}, init.init, init.scale, true);
  g.grad(inp);
  g.share_grad(h, out);  // backward works in place
  Drop dropout;
  if (drop > 0)  // it counts as a third layer, after the linear and the GELU
    dropout = {.image_rows = rows / dim(g, inp, 0), .layer = layer_number(g) + 2, .drop = drop};

  const auto forward = [=](const Context& r) {
    r.run(LinearGeluForward{.out = r.at(out),
                            .h = r.training ? r.at(h) : nullptr,
                            .inp = r.at(inp),
                            .weight = r.weight(weight),
                            .bias = r.weight(bias),
                            .shape = shape,
                            .dropout = r.training ? dropout : Drop{}});
  };
  const auto backward_gelu = [=](const Context& r) {
    r.run(BiasGeluBackward{.dinp = r.grad(h),
                           .dbias = r.dweight(bias),
                           .dout = r.grad(out),
                           .inp = r.at(h),
                           .bias = r.weight(bias),
                           .shape = {.rows = rows, .C = N},
                           .dropout = dropout});
  };
  const auto gradients = [=](const Context& r, void* dinp) {
    return LinearBackward{
        .weight = {.dweight = r.dweight(weight),
                   .dbias = nullptr,
                   .dout = r.grad(h),
                   .inp = r.at(inp),
                   .shape = shape},
        .input = {.dinp = dinp, .dout = r.grad(h), .weight = r.weight(weight), .shape = shape}};
  };
  const auto rest = [=](const Context& r) { r.run(gradients(r, r.grad(inp))); };
  const auto backward = [=](const Context& r) {
    backward_gelu(r);
    rest(r);
  };
  Node node{.name = name,
            .type = "linear gelu",
            .forward = forward,
            .backward = backward,
            .layers = drop > 0 ? 3 : 2};
  LinearInput made = out;
  made.node = static_cast<int>(g.nodes().size());
  made.backward_rest = rest;
  made.backward_first = [=](const Context& r, const LinearBackward& op) {
    r.run(GeluLinearBackward{.weight = op.weight,
                             .input = {.dinp = r.grad(h),
                                       .dgelu_bias = r.dweight(bias),
                                       .dout = op.input.dout,
                                       .h = r.at(h),
                                       .weight = op.input.weight,
                                       .gelu_bias = r.weight(bias),
                                       .shape = op.input.shape,
                                       .dropout = dropout}});
  };
  if (from.of_last_node(g)) {
    made.backward_rest_fused = [=, both = from.backward_first](const Context& r) {
      both(r, gradients(r, nullptr));
    };
    node.fused_backward = [=, rest_fused = made.backward_rest_fused](const Context& r) {
      backward_gelu(r);
      rest_fused(r);
    };
    node.fused_previous = from.backward_rest;
    node.fused_middle = from.backward_rest_fused;
  }
  g.add(std::move(node));
  return made;
}

}  // namespace bv
