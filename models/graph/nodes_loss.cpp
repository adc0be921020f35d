// Nodes: the loss.
#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"
#include "models/graph/planner.h"

namespace bv {
namespace {

class CrossEntropyNode : public Node {
 public:
  CrossEntropyNode(Tensor loss, Tensor lse, Tensor logits, int B, int K, float smoothing,
                   DType dtype)
      : Node("loss", "loss"),
        loss_(loss),
        lse_(lse),
        logits_(logits),
        B_(B),
        K_(K),
        smoothing_(smoothing),
        dtype_(dtype) {}

  void plan(Planner& p) const override {
    p.forward.uses({loss_, lse_, logits_});
    p.backward.uses({loss_, lse_, logits_, p.grad(logits_)});
  }
  void forward(const Context& r) const override {
    // Evaluation reports the loss without smoothing.
    r.kernels->run(CrossEntropyForward{.loss = r.floats(loss_),
                                       .lse = r.floats(lse_),
                                       .logits = r.at(logits_),
                                       .labels = r.labels,
                                       .targets = nullptr,
                                       .shape = {B_, K_},
                                       .smoothing = r.training ? smoothing_ : 0,
                                       .dtype = dtype_},
                   r.stream);
    if (r.sums)
      r.kernels->run(Metrics{.sums = r.sums,
                             .loss = r.floats(loss_),
                             .logits = r.at(logits_),
                             .labels = r.labels,
                             .shape = {B_, K_},
                             .dtype = dtype_},
                     r.stream);
  }
  void backward(const Context& r) const override {
    r.kernels->run(CrossEntropyBackward{.dlogits = r.grad(logits_),
                                        .logits = r.at(logits_),
                                        .lse = r.floats(lse_),
                                        .labels = r.labels,
                                        .targets = nullptr,
                                        .params = r.params,
                                        .state = r.state,
                                        .shape = {B_, K_},
                                        .smoothing = smoothing_,
                                        .dtype = dtype_},
                   r.stream);
    r.kernels->run(GradientTail{.tail = r.tail(),
                                .loss = r.floats(loss_),
                                .params = r.params,
                                .B = B_,
                                .accumulate = r.accumulate},
                   r.stream);
  }

 private:
  Tensor loss_, lse_, logits_;
  int B_, K_;
  float smoothing_;
  DType dtype_;
};

}  // namespace

Tensor cross_entropy(Graph& g, Tensor logits, float smoothing) {
  const int B = dim(g, logits, 0), K = dim(g, logits, 1);
  const Tensor loss = g.tensor("loss", {B}, DType::fp32),
               lse = g.tensor("loss lse", {B}, DType::fp32);
  g.grad(logits);
  g.add<CrossEntropyNode>(loss, lse, logits, B, K, smoothing, g.dtype());
  return loss;
}

}  // namespace bv
