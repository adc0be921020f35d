// Nodes: matrix products with bias and GELU.
#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class LinearNode : public Node {
 public:
  struct Shape {
    int M, N, K;
  };
  LinearNode(std::string name, Tensor out, Tensor inp, Parameter weight, Parameter bias,
             Shape shape, DType dtype, bool input_grad)
      : Node(std::move(name), "linear"),
        out_(out),
        inp_(inp),
        weight_(weight),
        bias_(bias),
        shape_(shape),
        dtype_(dtype),
        input_grad_(input_grad) {}

  void plan(Planner& p) const override {
    const Context blank = p.blank();
    p.forward.uses({out_, inp_}).needs(p.kernels().workspace_bytes(forward_op(blank)));
    p.backward.uses({p.grad(out_), inp_});
    // Both forms: the first micro-step of an update writes gradients, later ones add.
    for (const bool accumulate : {false, true}) {
      Context run = blank;
      run.accumulate = accumulate;
      p.backward.needs(p.kernels().workspace_bytes(weight_op(run)));
    }
    if (input_grad_)
      p.backward.uses({p.grad(inp_)}).needs(p.kernels().workspace_bytes(input_op(blank)));
  }
  void forward(const Context& r) const override { r.kernels->run(forward_op(r), r.stream); }
  void backward(const Context& r) const override {
    r.kernels->run(weight_op(r), r.stream);
    if (input_grad_) r.kernels->run(input_op(r), r.stream);
  }

 private:
  LinearForward forward_op(const Context& r) const {
    return {.out = r.at(out_),
            .workspace = r.workspace,
            .inp = r.at(inp_),
            .weight = r.weight(weight_),
            .bias = r.weight(bias_),
            .shape = {shape_.M, shape_.N, shape_.K},
            .dtype = dtype_};
  }
  LinearBackwardWeight weight_op(const Context& r) const {
    return {.dweight = r.dweight(weight_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .inp = r.at(inp_),
            .shape = {shape_.M, shape_.N, shape_.K},
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }
  LinearBackwardInput input_op(const Context& r) const {
    return {.dinp = r.grad(inp_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .weight = r.weight(weight_),
            .shape = {shape_.M, shape_.N, shape_.K},
            .dtype = dtype_};
  }

  Tensor out_, inp_;
  Parameter weight_, bias_;
  Shape shape_;
  DType dtype_;
  bool input_grad_;
};

class BiasGeluNode : public Node {
 public:
  BiasGeluNode(std::string name, Tensor out, Tensor inp, Parameter bias, int rows, int C,
               DType dtype)
      : Node(std::move(name), "gelu"),
        out_(out),
        inp_(inp),
        bias_(bias),
        rows_(rows),
        C_(C),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({out_, inp_});
    p.backward.uses({p.grad(out_), p.grad(inp_), inp_})
        .needs(p.kernels().workspace_bytes(backward_op(p.blank())));
  }
  void forward(const Context& r) const override {
    r.kernels->run(BiasGeluForward{.out = r.at(out_),
                                   .inp = r.at(inp_),
                                   .bias = r.weight(bias_),
                                   .shape = {rows_, C_},
                                   .dtype = dtype_},
                   r.stream);
  }
  void backward(const Context& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  BiasGeluBackward backward_op(const Context& r) const {
    return {.dinp = r.grad(inp_),
            .dbias = r.dweight(bias_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .inp = r.at(inp_),
            .bias = r.weight(bias_),
            .shape = {rows_, C_},
            .dtype = dtype_,
            .accumulate = r.accumulate};
  }

  Tensor out_, inp_;
  Parameter bias_;
  int rows_, C_;
  DType dtype_;
};

}  // namespace

Tensor linear(Graph& g, const std::string& name, Tensor inp, const LinearOptions& o) {
  const TensorInfo& from = g.info(inp);
  const int K = static_cast<int>(from.shape.back());
  const LinearNode::Shape shape{static_cast<int>(rows_of(from)), o.N, K};
  const Tensor out = g.tensor(name, with_last(from.shape, o.N));
  const Parameter weight = g.parameter(
      name + ".weight", o.weight_shape.empty() ? std::vector<int64_t>{o.N, K} : o.weight_shape,
      o.init.init, o.init.scale, true);
  const Parameter bias =
      o.bias ? g.parameter(name + ".bias", {o.N}, o.init.bias_init, o.init.scale, false)
             : Parameter{};
  if (o.input_grad) g.grad(inp);
  g.add<LinearNode>(name, out, inp, weight, bias, shape, g.dtype(), o.input_grad);
  return out;
}

Tensor linear_gelu(Graph& g, const std::string& name, Tensor inp, int N, WeightInit init) {
  const Tensor h = linear(g, name, inp, {.N = N, .init = init, .bias = false});
  const Parameter bias = g.parameter(name + ".bias", {N}, init.bias_init, init.scale, false);
  const Tensor out = g.tensor(name + " gelu", g.info(h).shape);
  g.share_grad(h, out);  // backward works in place
  g.add<BiasGeluNode>(name + " gelu", out, h, bias, static_cast<int>(rows_of(g.info(h))), N,
                      g.dtype());
  return out;
}

}  // namespace bv
