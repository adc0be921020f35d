#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {
namespace {

// `part`'s tokens are the first of each image's in `whole`.
FirstRows first_rows(const Graph& g, Tensor whole, Tensor part) {
  const int B = dim(g, whole, 0), N = rows_shape(g, whole).rows / B,
            Q = rows_shape(g, part).rows / B;
  return N == Q ? FirstRows{} : FirstRows{.N = N, .Q = Q};
}

}  // namespace

LayerNormOut layernorm(Graph& g, const std::string& name, Tensor inp, Tensor residual, float eps) {
  const std::vector<int64_t> dims = g.info(inp).shape;
  const RowsShape shape = rows_shape(g, inp);
  const Tensor out = g.tensor(name, dims);
  const Tensor sum = residual ? g.tensor(name + " sum", dims) : g.same_memory(inp, name + " input");
  const Tensor mean = g.tensor(name + " mean", {shape.rows}, DType::fp32);
  const Tensor rstd = g.tensor(name + " rstd", {shape.rows}, DType::fp32);
  g.grad(inp);
  if (residual) g.share_grad(inp, residual);
  const FirstRows first = residual ? first_rows(g, residual, inp) : FirstRows{};
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
                           .first = first,
                           .eps = eps});
  };
  const auto backward = [=](const Context& r) {
    const Tensor dsum{r.graph->info(sum).grad};  // only where a later node reads sum
    r.run(LayerNormBackward{.dinp = r.grad(inp),
                            .dweight = r.dweight(weight),
                            .dbias = r.dweight(bias),
                            .dout = r.grad(out),
                            .dsum = r.at(dsum),
                            .sum = r.at(sum),
                            .mean = r.floats(mean),
                            .rstd = r.floats(rstd),
                            .weight = r.master(weight),
                            .shape = shape,
                            .first = dsum ? first_rows(*r.graph, sum, dsum) : FirstRows{}});
  };
  g.add({name, "layernorm", forward, backward});
  return {sum, out};
}

}  // namespace bv
