#include <cmath>
#include <utility>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

ConvOut conv(Graph& g, const std::string& name, const BatchNormOut& norm, const ConvOptions& o) {
  const Tensor inp = norm.out;
  const ConvShape shape{.N = dim(g, inp, 0),
                        .H = dim(g, inp, 1),
                        .W = dim(g, inp, 2),
                        .C = dim(g, inp, 3),
                        .K = o.channels,
                        .R = o.filter,
                        .S = o.filter,
                        .stride = o.stride,
                        .padding = o.filter / 2,
                        .groups = o.groups};
  const Tensor out = g.tensor(name, {shape.N, shape.P(), shape.Q(), shape.K});
  const Tensor moments = g.tensor(name + " moments", {o.parts, 2, shape.K}, DType::fp32);
  const Tensor skip = o.skip ? g.same_memory(inp, name + " input") : Tensor{};
  // He et al. 2015 for a convolution followed by a ReLU, by fan-out as in torchvision.
  const float deviation = std::sqrt(2.0f / static_cast<float>(shape.K * shape.R * shape.S));
  const Parameter weight =
      g.parameter(name + ".weight", {shape.K, shape.C / shape.groups, shape.R, shape.S},
                  Init::normal, deviation, true, true);
  if (o.input_grad) g.grad(inp);
  if (o.skip) g.grad(skip);

  const auto forward = [=](const Context& r) {
    float* own = r.floats(moments);  // this part's row
    if (own) own += ptrdiff_t{2} * shape.K * r.part();
    r.run(ConvForward{.out = r.at(out),
                      .batch_stats = r.training ? own : nullptr,
                      .inp = r.at(inp),
                      .weight = r.weight(weight),
                      .shape = shape});
  };
  const auto of_weight = [=](const Context& r) {
    return ConvBackwardWeight{
        .dweight = r.dweight(weight), .dout = r.grad(out), .inp = r.at(inp), .shape = shape};
  };
  const auto backward = [=, input_grad = o.input_grad](const Context& r) {
    if (!input_grad) return r.run(of_weight(r));
    r.run(ConvBackward{.weight = of_weight(r),
                       .input = {.dinp = r.grad(inp),
                                 .dout = r.grad(out),
                                 .add = r.grad(skip),
                                 .weight = r.weight(weight),
                                 .shape = shape}});
  };
  Node node{name, "conv", forward, backward};
  if (norm.of_last_node(g)) {
    node.fused_backward = [=, both = norm.backward_first](const Context& r) {
      both(r, {.weight = of_weight(r),
               .input = {.dinp = r.grad(inp),
                         .dout = r.grad(out),
                         .add = r.grad(skip),
                         .weight = r.weight(weight),
                         .shape = shape}});
    };
    node.fused_previous = norm.backward_rest;
  }
  g.add(std::move(node));
  return {out, moments, skip};
}

}  // namespace bv
