// Nodes: convolution, batch norm, pooling.
#include <cmath>
#include <stdexcept>

#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class ConvNode : public Node {
 public:
  struct Tensors {
    Tensor out, moments, inp, skip;
  };
  ConvNode(std::string name, const Tensors& t, Parameter weight, const ConvShape& shape,
           DType dtype, bool input_grad)
      : Node(std::move(name), "conv"),
        t_(t),
        weight_(weight),
        shape_(shape),
        dtype_(dtype),
        input_grad_(input_grad) {}

  void plan(Planner& p) const override {
    const Context blank = p.blank();
    p.forward.uses({t_.out, t_.moments, t_.inp})
        .needs(p.kernels().workspace_bytes(forward_op(blank)));
    p.backward.uses({p.grad(t_.out), t_.inp});
    for (const bool accumulate : {false, true}) {
      Context run = blank;
      run.accumulate = accumulate;
      p.backward.needs(p.kernels().workspace_bytes(weight_op(run)));
    }
    if (input_grad_)
      p.backward.uses({p.grad(t_.inp), p.grad(t_.skip)})
          .needs(p.kernels().workspace_bytes(input_op(blank)));
  }
  void forward(const Context& r) const override { r.kernels->run(forward_op(r), r.stream); }
  void backward(const Context& r) const override {
    r.kernels->run(weight_op(r), r.stream);
    if (input_grad_) r.kernels->run(input_op(r), r.stream);
  }

 private:
  ConvForward forward_op(const Context& r) const {
    return {.out = r.at(t_.out),
            .moments = r.training ? own_moments(r) : nullptr,
            .workspace = r.workspace,
            .inp = r.at(t_.inp),
            .weight = r.weight(weight_),
            .shape = shape_,
            .dtype = dtype_};
  }
  float* own_moments(const Context& r) const {
    float* const all = r.floats(t_.moments);
    return all && r.peers ? all + ptrdiff_t{2} * shape_.K * r.peers->rank() : all;
  }
  ConvBackwardWeight weight_op(const Context& r) const {
    return {.dweight = r.dweight(weight_),
            .workspace = r.workspace,
            .dout = r.grad(t_.out),
            .inp = r.at(t_.inp),
            .shape = shape_,
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }
  ConvBackwardInput input_op(const Context& r) const {
    return {.dinp = r.grad(t_.inp),
            .workspace = r.workspace,
            .dout = r.grad(t_.out),
            .add = r.grad(t_.skip),
            .weight = r.weight(weight_),
            .shape = shape_,
            .dtype = dtype_};
  }

  Tensors t_;
  Parameter weight_;
  ConvShape shape_;
  DType dtype_;
  bool input_grad_;
};

class BatchNormNode : public Node {
 public:
  struct Tensors {
    Tensor out, inp, residual, moments, mean, rstd, sums;
  };
  struct Learned {
    Parameter weight, bias;
    Buffer running_mean, running_var;
  };
  struct Sizes {
    int rows, C, parts;
    float eps, momentum;
    bool relu;
  };
  BatchNormNode(std::string name, const Tensors& t, const Learned& learned, const Sizes& sizes,
                DType dtype)
      : Node(std::move(name), "batchnorm"), t_(t), learned_(learned), s_(sizes), dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({t_.out, t_.inp, t_.residual, t_.moments, t_.mean, t_.rstd});
    p.backward
        .uses({p.grad(t_.out), p.grad(t_.inp), t_.inp, t_.mean, t_.rstd, t_.sums,
               mask_from_out() ? t_.out : Tensor{}})
        .needs(p.kernels().workspace_bytes(sums_op(p.blank())));
  }

  void forward(const Context& r) const override {
    if (!r.training) return evaluate(r);
    if (s_.parts > 1) r.peers->all_gather(r.floats(t_.moments), 2 * static_cast<size_t>(s_.C));
    r.kernels->run(
        BatchNormForward{.out = r.at(t_.out),
                         .mean = r.floats(t_.mean),
                         .rstd = r.floats(t_.rstd),
                         .running_mean = r.recomputing ? nullptr : r.buffer(learned_.running_mean),
                         .running_var = r.recomputing ? nullptr : r.buffer(learned_.running_var),
                         .inp = r.at(t_.inp),
                         .residual = r.at(t_.residual),
                         .moments = r.floats(t_.moments),
                         .weight = r.master(learned_.weight),
                         .bias = r.master(learned_.bias),
                         .shape = {s_.rows, s_.C},
                         .parts = s_.parts,
                         .eps = s_.eps,
                         .momentum = s_.momentum,
                         .relu = s_.relu,
                         .dtype = dtype_},
        r.stream);
  }

  void backward(const Context& r) const override {
    r.kernels->run(sums_op(r), r.stream);
    if (s_.parts > 1) r.peers->all_reduce(r.floats(t_.sums), 2 * static_cast<size_t>(s_.C));
    r.kernels->run(BatchNormBackward{.dinp = r.grad(t_.inp),
                                     .sums = r.floats(t_.sums),
                                     .dout = r.grad(t_.out),  // g where there is a residual
                                     .inp = r.at(t_.inp),
                                     .mean = r.floats(t_.mean),
                                     .rstd = r.floats(t_.rstd),
                                     .weight = r.master(learned_.weight),
                                     .bias = r.master(learned_.bias),
                                     .shape = {s_.rows, s_.C},
                                     .parts = s_.parts,
                                     .relu = s_.relu && !t_.residual,
                                     .dtype = dtype_},
                   r.stream);
  }

 private:
  bool mask_from_out() const { return s_.relu && t_.residual; }

  void evaluate(const Context& r) const {
    r.kernels->run(BatchNormEvaluate{.out = r.at(t_.out),
                                     .inp = r.at(t_.inp),
                                     .residual = r.at(t_.residual),
                                     .running_mean = r.buffer(learned_.running_mean),
                                     .running_var = r.buffer(learned_.running_var),
                                     .weight = r.master(learned_.weight),
                                     .bias = r.master(learned_.bias),
                                     .shape = {s_.rows, s_.C},
                                     .eps = s_.eps,
                                     .relu = s_.relu,
                                     .dtype = dtype_},
                   r.stream);
  }
  BatchNormBackwardSums sums_op(const Context& r) const {
    return {.sums = r.floats(t_.sums),
            .dweight = r.dweight(learned_.weight),
            .dbias = r.dweight(learned_.bias),
            .g = t_.residual ? r.grad(t_.out) : nullptr,
            .workspace = r.workspace,
            .dout = r.grad(t_.out),
            .out = mask_from_out() ? r.at(t_.out) : nullptr,
            .inp = r.at(t_.inp),
            .mean = r.floats(t_.mean),
            .rstd = r.floats(t_.rstd),
            .weight = r.master(learned_.weight),
            .bias = r.master(learned_.bias),
            .shape = {s_.rows, s_.C},
            .relu = s_.relu,
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }

  Tensors t_;
  Learned learned_;
  Sizes s_;
  DType dtype_;
};

class MaxPoolNode : public Node {
 public:
  struct Shape {
    int N, H, W, C, R, stride, padding;
  };
  MaxPoolNode(std::string name, Tensor out, Tensor index, Tensor inp, Shape shape, DType dtype)
      : Node(std::move(name), "pool"),
        out_(out),
        index_(index),
        inp_(inp),
        s_(shape),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, index_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_), index_});
  }
  void forward(const Context& r) const override {
    r.kernels->run(MaxPoolForward{.out = r.at(out_),
                                  .index = static_cast<uint8_t*>(r.at(index_)),
                                  .inp = r.at(inp_),
                                  .shape = {s_.N, s_.H, s_.W, s_.C, s_.R, s_.stride, s_.padding},
                                  .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(MaxPoolBackward{.dinp = r.grad(inp_),
                                   .dout = r.grad(out_),
                                   .index = static_cast<const uint8_t*>(r.at(index_)),
                                   .shape = {s_.N, s_.H, s_.W, s_.C, s_.R, s_.stride, s_.padding},
                                   .dtype = dtype_},
                   r.stream);
  }

 private:
  Tensor out_, index_, inp_;
  Shape s_;
  DType dtype_;
};

class AveragePoolNode : public Node {
 public:
  struct Shape {
    int N, positions, C;
  };
  AveragePoolNode(std::string name, Tensor out, Tensor inp, Shape shape, DType dtype)
      : Node(std::move(name), "pool"), out_(out), inp_(inp), s_(shape), dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_)});
  }
  void forward(const Context& r) const override {
    r.kernels->run(AveragePoolForward{.out = r.at(out_),
                                      .inp = r.at(inp_),
                                      .shape = {s_.N, s_.positions, s_.C},
                                      .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(AveragePoolBackward{.dinp = r.grad(inp_),
                                       .dout = r.grad(out_),
                                       .shape = {s_.N, s_.positions, s_.C},
                                       .dtype = dtype_},
                   r.stream);
  }

 private:
  Tensor out_, inp_;
  Shape s_;
  DType dtype_;
};

// He et al. 2015 for what goes out of a convolution that a ReLU follows, as torchvision starts it.
float he_deviation(const ConvShape& s) {
  return std::sqrt(2.0f / static_cast<float>(s.K * s.R * s.S));
}

}  // namespace

ConvOut conv(Graph& g, const std::string& name, Tensor inp, const ConvOptions& o) {
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
  const ConvNode::Tensors t{
      .out = g.tensor(name, {shape.N, shape.P(), shape.Q(), shape.K}),
      .moments = g.tensor(name + " moments", {o.parts, 2, shape.K}, DType::fp32),
      .inp = inp,
      .skip = o.skip ? g.same_memory(inp, name + " input") : Tensor{}};
  const Parameter weight =
      g.parameter(name + ".weight", {shape.K, shape.C / shape.groups, shape.R, shape.S},
                  Init::normal, he_deviation(shape), true, true);
  if (o.input_grad) g.grad(inp);
  if (o.skip) g.grad(t.skip);
  g.add<ConvNode>(name, t, weight, shape, g.dtype(), o.input_grad);
  return {t.out, t.moments, t.skip};
}

Tensor batchnorm(Graph& g, const std::string& name, const ConvOut& from, Tensor residual,
                 const BatchNormOptions& o) {
  const std::vector<int64_t> shape = g.info(from.out).shape;
  const int C = static_cast<int>(shape.back()), rows = static_cast<int>(rows_of(g.info(from.out)));
  const int parts = dim(g, from.moments, 0);
  if (rows * parts == 1)
    throw std::invalid_argument(name + " has a single value per channel (" +
                                std::to_string(shape[1]) + "x" + std::to_string(shape[2]) +
                                " positions, one image), so its variance is undefined");
  const BatchNormNode::Tensors t{.out = g.tensor(name, shape),
                                 .inp = from.out,
                                 .residual = residual,
                                 .moments = from.moments,
                                 .mean = g.tensor(name + " mean", {C}, DType::fp32),
                                 .rstd = g.tensor(name + " rstd", {C}, DType::fp32),
                                 .sums = g.tensor(name + " d sums", {2, C}, DType::fp32)};
  if (residual) {
    g.grad(from.out);
    g.share_grad(residual, t.out);  // the residual's gradient takes the place of out's
  } else {
    g.share_grad(from.out, t.out);  // backward works in place
  }
  const BatchNormNode::Learned learned{
      .weight =
          g.parameter(name + ".weight", {C}, o.zero_weight ? Init::zeros : Init::ones, 0, false),
      .bias = g.parameter(name + ".bias", {C}, Init::zeros, 0, false),
      .running_mean = g.buffer(name + ".running_mean", {C}, Init::zeros),
      .running_var = g.buffer(name + ".running_var", {C}, Init::ones)};
  const BatchNormNode::Sizes sizes{
      .rows = rows, .C = C, .parts = parts, .eps = o.eps, .momentum = o.momentum, .relu = o.relu};
  g.add<BatchNormNode>(name, t, learned, sizes, g.dtype());
  return t.out;
}

Tensor max_pool(Graph& g, const std::string& name, Tensor inp, int window, int stride) {
  const MaxPoolNode::Shape shape{.N = dim(g, inp, 0),
                                 .H = dim(g, inp, 1),
                                 .W = dim(g, inp, 2),
                                 .C = dim(g, inp, 3),
                                 .R = window,
                                 .stride = stride,
                                 .padding = window / 2};
  const auto size = [&](int n) { return (n + 2 * shape.padding - window) / stride + 1; };
  const std::vector<int64_t> outs{shape.N, size(shape.H), size(shape.W), shape.C};
  const Tensor out = g.tensor(name, outs);
  const Tensor index = g.bytes(name + " index", outs);
  g.grad(inp);
  g.add<MaxPoolNode>(name, out, index, inp, shape, g.dtype());
  return out;
}

Tensor average_pool(Graph& g, const std::string& name, Tensor inp) {
  const AveragePoolNode::Shape shape{dim(g, inp, 0), dim(g, inp, 1) * dim(g, inp, 2),
                                     dim(g, inp, 3)};
  const Tensor out = g.tensor(name, {shape.N, shape.C});
  g.grad(inp);
  g.add<AveragePoolNode>(name, out, inp, shape, g.dtype());
  return out;
}

}  // namespace bv
