#include <optional>
#include <stdexcept>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

namespace {

// The tensors of one batch norm; a node computes one or two.
struct Norm {
  Tensor inp, moments, mean, rstd;
  Parameter weight, bias;
  Buffer running_mean, running_var;

  Norm(Graph& g, const std::string& name, Tensor of, Tensor moments_of, int C, bool zero_weight)
      : inp(of),
        moments(moments_of),
        mean(g.tensor(name + " mean", {C}, DType::fp32)),
        rstd(g.tensor(name + " rstd", {C}, DType::fp32)),
        weight(
            g.in_fp32(g.parameter(name + ".weight", {C}, zero_weight ? Init::zeros : Init::ones))),
        bias(g.in_fp32(g.parameter(name + ".bias", {C}, Init::zeros))),
        running_mean(g.buffer(name + ".running_mean", {C}, Init::zeros)),
        running_var(g.buffer(name + ".running_var", {C}, Init::ones)) {}

  BatchNormForward::Norm forward(const Context& r) const {
    return {.mean = r.floats(mean),
            .rstd = r.floats(rstd),
            .running_mean = r.recomputing ? nullptr : r.buffer(running_mean),
            .running_var = r.recomputing ? nullptr : r.buffer(running_var),
            .moments = r.floats(moments),
            .weight = r.master(weight),
            .bias = r.master(bias)};
  }
  BatchNormEvaluate evaluate(const Context& r, const RowsShape& shape, float eps) const {
    return {.out = r.at(inp),
            .inp = r.at(inp),
            .running_mean = r.buffer(running_mean),
            .running_var = r.buffer(running_var),
            .weight = r.master(weight),
            .bias = r.master(bias),
            .shape = shape,
            .eps = eps};
  }
  BatchNormBackwardSums sums(const Context& r, float* sums, const RowsShape& shape) const {
    return {.sums = sums,
            .dweight = r.dweight(weight),
            .dbias = r.dweight(bias),
            .inp = r.at(inp),
            .mean = r.floats(mean),
            .rstd = r.floats(rstd),
            .weight = r.master(weight),
            .bias = r.master(bias),
            .shape = shape};
  }
  BatchNormBackward::Norm backward(const Context& r, const float* sums) const {
    return {.dinp = r.grad(inp),
            .sums = sums,
            .inp = r.at(inp),
            .mean = r.floats(mean),
            .rstd = r.floats(rstd),
            .weight = r.master(weight)};
  }
};

}  // namespace

BatchNormOut batchnorm(Graph& g, const std::string& name, const ConvOut& from,
                       const Residual& residual, const BatchNormOptions& o) {
  const Tensor inp = from.out, added = residual.out;
  const std::vector<int64_t> dims = g.info(inp).shape;
  const RowsShape shape = rows_shape(g, inp);
  const int parts = dim(g, from.moments, 0);
  if (shape.rows * parts == 1)
    throw std::invalid_argument(name + " has a single value per channel (" +
                                std::to_string(dims[1]) + "x" + std::to_string(dims[2]) +
                                " positions, one image), so its variance is undefined");
  const Tensor out = g.tensor(name, dims);
  Tensor relu_mask;
  if (o.relu && added)
    relu_mask = g.bytes(name + " relu_mask", {(shape.C + 63) / 64, shape.rows, 8});
  // The residual's parameters come first, as in the model's files.
  std::optional<Norm> other;
  if (residual.moments) other.emplace(g, residual.norm, added, residual.moments, shape.C, false);
  const Norm norm(g, name, inp, from.moments, shape.C, o.zero_weight);
  const Tensor all_sums = g.tensor(name + " d sums", {other ? 4 : 2, shape.C}, DType::fp32);
  if (added) g.grad(inp);
  // Backward runs in place: out's gradient tensor becomes the residual's, or inp's without one.
  g.share_grad(added ? added : inp, out);
  const size_t pair = 2 * static_cast<size_t>(shape.C);  // mean and variance, or two sums

  const auto evaluate = [=](const Context& r) {
    if (other) r.run(other->evaluate(r, shape, o.eps));
    BatchNormEvaluate op = norm.evaluate(r, shape, o.eps);
    op.out = r.at(out), op.residual = r.at(added), op.relu = o.relu;
    r.run(op);
  };
  const auto forward = [=](const Context& r) {
    if (!r.training) return evaluate(r);
    if (parts > 1) r.all_gather(r.floats(norm.moments), pair);
    if (parts > 1 && other) r.all_gather(r.floats(other->moments), pair);
    r.run(BatchNormForward{.out = r.at(out),
                           .relu_mask = r.words(relu_mask),
                           .inp = r.at(inp),
                           .residual = r.at(added),
                           .norm = norm.forward(r),
                           .residual_norm = other ? other->forward(r) : BatchNormForward::Norm{},
                           .shape = shape,
                           .parts = parts,
                           .eps = o.eps,
                           .momentum = o.momentum,
                           .relu = o.relu});
  };
  const auto rest = [=](const Context& r) {
    float* sums = r.floats(all_sums);
    BatchNormBackward op{.dout = r.grad(out),  // with a residual, g from the first pass
                         .norm = norm.backward(r, sums),
                         .bias = r.master(norm.bias),
                         .shape = shape,
                         .parts = parts,
                         .relu = o.relu && !added};
    if (other) {
      BatchNormBackwardSums of_residual = other->sums(r, sums ? sums + pair : nullptr, shape);
      of_residual.dout = r.grad(out);
      if (r.first_half()) r.run(of_residual);
      op.residual_norm = other->backward(r, of_residual.sums);
    }
    if (!r.second_half()) return;
    if (parts > 1) r.all_reduce(sums, other ? 2 * pair : pair);
    r.run(op);
  };
  const auto backward = [=](const Context& r) {
    BatchNormBackwardSums op = norm.sums(r, r.floats(all_sums), shape);
    op.g = added ? r.grad(out) : nullptr, op.dout = r.grad(out);
    op.relu_mask = r.words(relu_mask), op.relu = o.relu;
    if (r.first_half()) r.run(op);
    rest(r);
  };
  g.add({.name = name,
         .type = "batchnorm",
         .forward = forward,
         .backward = backward,
         .layers = other ? 2 : 1,
         .in_halves = parts > 1});
  BatchNormOut made = out;
  made.node = static_cast<int>(g.nodes().size()) - 1;
  made.backward_rest = rest;
  made.backward_first = [=, relu = o.relu](const Context& r, ConvBackwardSums op) {
    ConvBackwardInputSums& input = op.input;
    input.sums = r.floats(all_sums);
    input.dnorm_weight = r.dweight(norm.weight);
    input.dnorm_bias = r.dweight(norm.bias);
    input.norm_relu_mask = r.words(relu_mask);
    input.norm_inp = r.at(inp);
    input.mean = r.floats(norm.mean);
    input.rstd = r.floats(norm.rstd);
    input.norm_weight = r.master(norm.weight);
    input.norm_bias = r.master(norm.bias);
    input.relu = relu;
    r.run(op);
  };
  return made;
}

}  // namespace bv
