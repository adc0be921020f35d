// Nodes: attention.
#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class AttentionNode : public Node {
 public:
  struct Shape {
    int B, N, H, D;
  };
  AttentionNode(std::string name, Tensor out, Tensor lse, Tensor qkv, Shape shape, uint32_t layer,
                float drop, DType dtype)
      : Node(std::move(name), "attention"),
        out_(out),
        lse_(lse),
        qkv_(qkv),
        shape_(shape),
        layer_(layer),
        drop_(drop),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    const Context blank = p.blank();
    p.forward.uses({out_, lse_, qkv_}).needs(p.kernels().workspace_bytes(forward_op(blank)));
    p.backward.uses({p.grad(out_), p.grad(qkv_), out_, lse_, qkv_})
        .needs(p.kernels().workspace_bytes(backward_op(blank)));
  }
  void forward(const Context& r) const override { r.kernels->run(forward_op(r), r.stream); }
  void backward(const Context& r) const override { r.kernels->run(backward_op(r), r.stream); }

 private:
  AttentionForward forward_op(const Context& r) const {
    return {.out = r.at(out_),
            .lse = r.floats(lse_),
            .workspace = r.workspace,
            .qkv = r.at(qkv_),
            .params = r.params,
            .shape = {shape_.B, shape_.N, shape_.H, shape_.D},
            .layer = layer_,
            .drop = r.training ? drop_ : 0,
            .dtype = dtype_};
  }
  AttentionBackward backward_op(const Context& r) const {
    return {.dqkv = r.grad(qkv_),
            .workspace = r.workspace,
            .dout = r.grad(out_),
            .qkv = r.at(qkv_),
            .out = r.at(out_),
            .lse = r.floats(lse_),
            .params = r.params,
            .shape = {shape_.B, shape_.N, shape_.H, shape_.D},
            .layer = layer_,
            .drop = drop_,
            .dtype = dtype_};
  }

  Tensor out_, lse_, qkv_;
  Shape shape_;
  uint32_t layer_;
  float drop_;
  DType dtype_;
};

}  // namespace

Tensor attention(Graph& g, const std::string& name, Tensor qkv, int heads, float drop) {
  const int B = dim(g, qkv, 0), N = dim(g, qkv, 1), C = dim(g, qkv, 2) / 3;
  const Tensor out = g.tensor(name, {B, N, C});
  const Tensor lse = g.tensor(name + " lse", {B, heads, N}, DType::fp32);
  g.grad(qkv);
  g.add<AttentionNode>(name, out, lse, qkv, AttentionNode::Shape{B, N, heads, C / heads},
                       layer_number(g), drop, g.dtype());
  return out;
}

}  // namespace bv
