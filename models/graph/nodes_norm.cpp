// Nodes: layer norm with the residual add, dropout.
#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class LayerNormNode : public Node {
 public:
  struct Tensors {
    Tensor out, sum, mean, rstd, inp, residual;
  };
  LayerNormNode(std::string name, const Tensors& t, Parameter weight, Parameter bias, int rows,
                int C, float eps, DType dtype)
      : Node(std::move(name), "layernorm"),
        t_(t),
        weight_(weight),
        bias_(bias),
        rows_(rows),
        C_(C),
        eps_(eps),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({t_.out, t_.sum, t_.mean, t_.rstd, t_.inp, t_.residual});
    // The gradient of sum is there only where a later node reads sum.
    p.backward.uses({p.grad(t_.out), p.grad(t_.sum), p.grad(t_.inp), t_.sum, t_.mean, t_.rstd});
    p.backward.needs(p.kernels().workspace_bytes(backward_op(p.blank())));
  }
  void forward(const Context& r) const override {
    r.kernels->run(LayerNormForward{.out = r.at(t_.out),
                                    .sum = t_.residual ? r.at(t_.sum) : nullptr,
                                    .mean = r.floats(t_.mean),
                                    .rstd = r.floats(t_.rstd),
                                    .inp = r.at(t_.inp),
                                    .residual = t_.residual ? r.at(t_.residual) : nullptr,
                                    .weight = r.master(weight_),
                                    .bias = r.master(bias_),
                                    .shape = {rows_, C_},
                                    .eps = eps_,
                                    .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  LayerNormBackward backward_op(const Context& r) const {
    return {.dinp = r.grad(t_.inp),
            .dweight = r.dweight(weight_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(t_.out),
            .dsum = r.grad(t_.sum),
            .sum = r.at(t_.sum),
            .mean = r.floats(t_.mean),
            .rstd = r.floats(t_.rstd),
            .weight = r.master(weight_),
            .shape = {rows_, C_},
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }

  Tensors t_;
  Parameter weight_, bias_;
  int rows_, C_;
  float eps_;
  DType dtype_;
};

// Forward in place; backward into another buffer, since the gradient that it reads may be shared.
class DropoutNode : public Node {
 public:
  struct Shape {
    int B, elements, group;
  };
  DropoutNode(std::string name, Tensor out, Tensor inp, Shape shape, uint32_t layer, float drop,
              DType dtype)
      : Node(std::move(name), "dropout"),
        out_(out),
        inp_(inp),
        shape_(shape),
        layer_(layer),
        drop_(drop),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_)});
  }
  void forward(const Context& r) const override {
    if (r.training) r.kernels->run(op(r, r.at(out_), r.at(inp_)), r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(op(r, r.grad(inp_), r.grad(out_)), r.stream);
  }

 private:
  Dropout op(const Context& r, void* out, const void* inp) const {
    return {.out = out,
            .inp = inp,
            .params = r.params,
            .shape = {shape_.B, shape_.elements, shape_.group},
            .layer = layer_,
            .drop = drop_,
            .dtype = dtype_};
  }

  Tensor out_, inp_;
  Shape shape_;
  uint32_t layer_;
  float drop_;
  DType dtype_;
};

}  // namespace

NormOut layernorm(Graph& g, const std::string& name, Tensor inp, Tensor residual, float eps) {
  const std::vector<int64_t> shape = g.info(inp).shape;
  const int C = static_cast<int>(shape.back()), rows = static_cast<int>(rows_of(g.info(inp)));
  LayerNormNode::Tensors t{
      .out = g.tensor(name, shape),
      .sum = residual ? g.tensor(name + " sum", shape) : g.same_memory(inp, name + " input"),
      .mean = g.tensor(name + " mean", {rows}, DType::fp32),
      .rstd = g.tensor(name + " rstd", {rows}, DType::fp32),
      .inp = inp,
      .residual = residual};
  g.grad(inp);
  if (residual) g.share_grad(inp, residual);
  const Parameter weight = g.parameter(name + ".weight", {C}, Init::ones, 0, false);
  const Parameter bias = g.parameter(name + ".bias", {C}, Init::zeros, 0, false);
  g.add<LayerNormNode>(name, t, weight, bias, rows, C, eps, g.dtype());
  return {t.sum, t.out};
}

Tensor dropout(Graph& g, const std::string& name, Tensor inp, float drop, bool whole_images) {
  if (drop <= 0) return inp;
  const int B = dim(g, inp, 0);
  const int elements = static_cast<int>(rows_of(g.info(inp)) / B * g.info(inp).shape.back());
  const Tensor out = g.same_memory(inp, name);
  g.grad(inp);
  g.add<DropoutNode>(name, out, inp, DropoutNode::Shape{B, elements, whole_images ? elements : 1},
                     layer_number(g), drop, g.dtype());
  return out;
}

}  // namespace bv
