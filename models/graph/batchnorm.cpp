#include <stdexcept>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

BatchNormOut batchnorm(Graph& g, const std::string& name, const ConvOut& from, Tensor residual,
                       const BatchNormOptions& o) {
  const Tensor inp = from.out, moments = from.moments;
  const std::vector<int64_t> dims = g.info(inp).shape;
  const RowsShape shape = rows_shape(g, inp);
  const int parts = dim(g, moments, 0);
  if (shape.rows * parts == 1)
    throw std::invalid_argument(name + " has a single value per channel (" +
                                std::to_string(dims[1]) + "x" + std::to_string(dims[2]) +
                                " positions, one image), so its variance is undefined");
  const Tensor out = g.tensor(name, dims);
  const Tensor mean = g.tensor(name + " mean", {shape.C}, DType::fp32);
  const Tensor rstd = g.tensor(name + " rstd", {shape.C}, DType::fp32);
  Tensor relu_mask;
  if (o.relu && residual)
    relu_mask = g.bytes(name + " relu_mask", {(shape.C + 63) / 64, shape.rows, 8});
  const Tensor sums = g.tensor(name + " d sums", {2, shape.C}, DType::fp32);
  if (residual) g.grad(inp);
  // In place: out's gradient becomes the residual's or, without one, inp's.
  g.share_grad(residual ? residual : inp, out);
  const Init first_weight = o.zero_weight ? Init::zeros : Init::ones;
  const Parameter weight = g.parameter(name + ".weight", {shape.C}, first_weight);
  const Parameter bias = g.parameter(name + ".bias", {shape.C}, Init::zeros);
  const Buffer running_mean = g.buffer(name + ".running_mean", {shape.C}, Init::zeros);
  const Buffer running_var = g.buffer(name + ".running_var", {shape.C}, Init::ones);
  const size_t pair = 2 * static_cast<size_t>(shape.C);  // mean and variance, or two sums

  const auto evaluate = [=](const Context& r) {
    r.run(BatchNormEvaluate{.out = r.at(out),
                            .inp = r.at(inp),
                            .residual = r.at(residual),
                            .running_mean = r.buffer(running_mean),
                            .running_var = r.buffer(running_var),
                            .weight = r.master(weight),
                            .bias = r.master(bias),
                            .shape = shape,
                            .eps = o.eps,
                            .relu = o.relu});
  };
  const auto forward = [=](const Context& r) {
    if (!r.training) return evaluate(r);
    if (parts > 1) r.all_gather(r.floats(moments), pair);
    r.run(BatchNormForward{.out = r.at(out),
                           .mean = r.floats(mean),
                           .rstd = r.floats(rstd),
                           .relu_mask = r.words(relu_mask),
                           .running_mean = r.recomputing ? nullptr : r.buffer(running_mean),
                           .running_var = r.recomputing ? nullptr : r.buffer(running_var),
                           .inp = r.at(inp),
                           .residual = r.at(residual),
                           .moments = r.floats(moments),
                           .weight = r.master(weight),
                           .bias = r.master(bias),
                           .shape = shape,
                           .parts = parts,
                           .eps = o.eps,
                           .momentum = o.momentum,
                           .relu = o.relu});
  };
  const auto rest = [=](const Context& r) {
    if (parts > 1) r.all_reduce(r.floats(sums), pair);
    r.run(BatchNormBackward{.dinp = r.grad(inp),
                            .sums = r.floats(sums),
                            .dout = r.grad(out),  // g if there is a residual
                            .inp = r.at(inp),
                            .mean = r.floats(mean),
                            .rstd = r.floats(rstd),
                            .weight = r.master(weight),
                            .bias = r.master(bias),
                            .shape = shape,
                            .parts = parts,
                            .relu = o.relu && !residual});
  };
  const auto backward = [=](const Context& r) {
    r.run(BatchNormBackwardSums{.sums = r.floats(sums),
                                .dweight = r.dweight(weight),
                                .dbias = r.dweight(bias),
                                .g = residual ? r.grad(out) : nullptr,
                                .dout = r.grad(out),
                                .relu_mask = r.words(relu_mask),
                                .inp = r.at(inp),
                                .mean = r.floats(mean),
                                .rstd = r.floats(rstd),
                                .weight = r.master(weight),
                                .bias = r.master(bias),
                                .shape = shape,
                                .relu = o.relu});
    rest(r);
  };
  g.add({name, "batchnorm", forward, backward});
  BatchNormOut made = out;
  made.node = static_cast<int>(g.nodes().size()) - 1;
  made.backward_rest = rest;
  made.backward_first = [=, relu = o.relu](const Context& r, ConvBackwardInputSums op) {
    op.sums = r.floats(sums);
    op.dnorm_weight = r.dweight(weight);
    op.dnorm_bias = r.dweight(bias);
    op.norm_relu_mask = r.words(relu_mask);
    op.norm_inp = r.at(inp);
    op.mean = r.floats(mean);
    op.rstd = r.floats(rstd);
    op.norm_weight = r.master(weight);
    op.norm_bias = r.master(bias);
    op.relu = relu;
    r.run(op);
  };
  return made;
}

}  // namespace bv
