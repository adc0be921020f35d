#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

NormOut layernorm(Graph& g, const std::string& name, Tensor inp, Tensor residual, float eps) {
  const std::vector<int64_t> dims = g.info(inp).shape;
  const RowsShape shape = rows_shape(g, inp);
  const Tensor out = g.tensor(name, dims);
  const Tensor sum = residual ? g.tensor(name + " sum", dims) : g.same_memory(inp, name + " input");
  const Tensor mean = g.tensor(name + " mean", {shape.rows}, DType::fp32);
  const Tensor rstd = g.tensor(name + " rstd", {shape.rows}, DType::fp32);
  g.grad(inp);
  if (residual) g.share_grad(inp, residual);
  const Parameter weight = g.parameter(name + ".weight", {shape.C}, Init::ones);
  const Parameter bias = g.parameter(name + ".bias", {shape.C}, Init::zeros);

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
                           .eps = eps});
  };
  const auto backward = [=](const Context& r) {
    r.run(LayerNormBackward{.dinp = r.grad(inp),
                            .dweight = r.dweight(weight),
                            .dbias = r.dweight(bias),
                            .dout = r.grad(out),
                            .dsum = r.grad(sum),  // only where a later node reads sum
                            .sum = r.at(sum),
                            .mean = r.floats(mean),
                            .rstd = r.floats(rstd),
                            .weight = r.master(weight),
                            .shape = shape});
  };
  g.add({name, "layernorm", forward, backward});
  return {sum, out};
}

}  // namespace bv
