#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {

Tensor cross_entropy(Graph& g, Tensor logits, float smoothing) {
  const ClassesShape shape{.B = dim(g, logits, 0), .K = dim(g, logits, 1)};
  const Tensor loss = g.tensor("loss", {shape.B}, DType::fp32);
  const Tensor lse = g.tensor("loss lse", {shape.B}, DType::fp32);
  const Tensor top1 = g.tensor("loss top1", {shape.B}, DType::fp32);
  g.grad(logits);

  const auto forward = [=](const Context& r) {
    // Evaluation reports the loss without smoothing, of images that are not mixed.
    r.run(CrossEntropyForward{.loss = r.floats(loss),
                              .lse = r.floats(lse),
                              .top1 = r.floats(top1),
                              .logits = r.at(logits),
                              .labels = r.labels,
                              .mixes = r.training ? r.mixes : nullptr,
                              .shape = shape,
                              .smoothing = r.training ? smoothing : 0});
    if (r.sums)
      r.run(Metrics{.sums = r.sums,
                    .loss = r.floats(loss),
                    .logits = r.at(logits),
                    .labels = r.labels,
                    .shape = shape});
  };
  const auto backward = [=](const Context& r) {
    r.run(CrossEntropyBackward{.dlogits = r.grad(logits),
                               .logits = r.at(logits),
                               .lse = r.floats(lse),
                               .labels = r.labels,
                               .mixes = r.mixes,
                               .state = r.state,
                               .shape = shape,
                               .smoothing = smoothing});
    r.run(GradientTail{
        .tail = r.tail(), .loss = r.floats(loss), .top1 = r.floats(top1), .B = shape.B});
  };
  g.add({"loss", "loss", forward, backward});
  g.end_with(logits, loss);
  return loss;
}

}  // namespace bv
