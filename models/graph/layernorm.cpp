#include <utility>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

LayerNormOut layernorm(Graph& g, const std::string& name, Tensor inp, const Branch& branch,
                       float eps, int tokens) {
  const Tensor residual = branch.out.out;
  const std::vector<int64_t> dims = g.info(inp).shape;
  const RowsShape shape = rows_shape(g, inp);
  const Tensor out = g.tensor(name, dims);
  const Tensor sum = residual ? g.tensor(name + " sum", dims) : g.same_memory(inp, name + " input");
  const Tensor mean = g.tensor(name + " mean", {shape.rows}, DType::fp32);
  const Tensor rstd = g.tensor(name + " rstd", {shape.rows}, DType::fp32);
  const int B = dim(g, inp, 0);
  // Dropout and drop path count as layers of their own (Node::layers).
  int layers = 0;
  const auto layer_of = [&](float drop) {
    const uint32_t layer = layer_number(g) + static_cast<uint32_t>(layers);
    return drop > 0                                                         ? ++layers,
           Drop{.image_rows = shape.rows / B, .layer = layer, .drop = drop} : Drop{};
  };
  const Drop dropout = layer_of(branch.drop), drop_path = layer_of(branch.drop_path);
  const bool drops = layers > 0;
  g.grad(inp);
  if (drops)
    g.grad(residual);
  else if (residual)
    g.share_grad(inp, residual);
  const TokensShape first{.B = B, .N = shape.rows / B, .C = shape.C, .count = tokens};
  Tensor taken;
  if (tokens)
    taken = g.tensor(name + " first tokens", tokens_shape(B, tokens, shape.C)), g.grad(sum);
  const Parameter weight = g.in_fp32(g.parameter(name + ".weight", {shape.C}, Init::ones));
  const Parameter bias = g.in_fp32(g.parameter(name + ".bias", {shape.C}, Init::zeros));

  const auto take = [=](const Context& r) {
    if (tokens) r.run(TakeTokensForward{.out = r.at(taken), .inp = r.at(sum), .shape = first});
  };
  const auto forward = [=](const Context& r) {
    r.run(LayerNormForward{.out = r.at(out),
                           .sum = residual ? r.at(sum) : nullptr,
                           .mean = r.floats(mean),
                           .rstd = r.floats(rstd),
                           .inp = r.at(inp),
                           .residual = r.at(residual),
                           .weight = r.master(weight),
                           .bias = r.master(bias),
                           .shape = shape,
                           .dropout = r.training ? dropout : Drop{},
                           .drop_path = r.training ? drop_path : Drop{},
                           .eps = eps});
    take(r);
  };
  const auto backward_taken = [=](const Context& r) {
    if (tokens)
      r.run(TakeTokensBackward{.dinp = r.grad(sum), .dout = r.grad(taken), .shape = first});
  };
  const auto backward = [=](const Context& r) {
    backward_taken(r);
    r.run(LayerNormBackward{.dinp = r.grad(inp),
                            .dresidual = drops ? r.grad(residual) : nullptr,
                            .dweight = r.dweight(weight),
                            .dbias = r.dweight(bias),
                            .dout = r.grad(out),
                            .dsum = r.grad(sum),  // null unless a later node reads sum
                            .sum = r.at(sum),
                            .mean = r.floats(mean),
                            .rstd = r.floats(rstd),
                            .weight = r.master(weight),
                            .shape = shape,
                            .dropout = dropout,
                            .drop_path = drop_path});
  };
  Node node{.name = name,
            .type = "layernorm",
            .forward = forward,
            .backward = backward,
            .layers = 1 + layers};
  if (branch.out.of_last_node(g))
    node.fused_forward = [=, linear = branch.out.forward_with](const Context& r) {
      linear(r, {.out = r.at(out),
                 .sum = r.at(sum),
                 .mean = r.floats(mean),
                 .rstd = r.floats(rstd),
                 .stream = r.at(inp),
                 .norm_weight = r.master(weight),
                 .norm_bias = r.master(bias),
                 .dropout = r.training ? dropout : Drop{},
                 .drop_path = r.training ? drop_path : Drop{},
                 .eps = eps});
      take(r);
    };
  g.add(std::move(node));
  LinearInput made = out;
  made.node = static_cast<int>(g.nodes().size()) - 1;
  made.backward_rest = [](const Context&) {};
  made.backward_first = [=](const Context& r, const LinearBackward& op) {
    backward_taken(r);
    r.run(NormLinearBackward{.weight = op.weight,
                             .input = {.dinp = r.grad(inp),
                                       .dresidual = drops ? r.grad(residual) : nullptr,
                                       .dnorm_weight = r.dweight(weight),
                                       .dnorm_bias = r.dweight(bias),
                                       .dout = op.input.dout,
                                       .dsum = r.grad(sum),
                                       .sum = r.at(sum),
                                       .mean = r.floats(mean),
                                       .rstd = r.floats(rstd),
                                       .weight = op.input.weight,
                                       .norm_weight = r.master(weight),
                                       .shape = op.input.shape,
                                       .dropout = dropout,
                                       .drop_path = drop_path}});
  };
  return {tokens ? taken : sum, made};
}

}  // namespace bv
