#include "models/graph/node_shapes.h"
#include "models/graph/nodes.h"

namespace bv {
namespace {

// One head's logits, and the results computed from them.
struct Head {
  Tensor logits, lse, top1;
};

Head make_head(Graph& g, const std::string& name, Tensor logits) {
  const ClassesShape shape{.B = dim(g, logits, 0), .K = dim(g, logits, 1)};
  return {logits, g.tensor(name + " lse", {shape.B}, DType::fp32),
          g.tensor(name + " top1", {shape.B}, DType::fp32)};
}

// loss = or += share times the head's loss. Evaluation reports the loss without smoothing, on
// images that are not mixed.
void forward(const Context& r, const Head& head, Tensor loss, ClassesShape shape, float smoothing,
             float share = 1, bool add = false) {
  r.run(CrossEntropyForward{.loss = r.floats(loss),
                            .lse = r.floats(head.lse),
                            .top1 = r.floats(head.top1),
                            .logits = r.at(head.logits),
                            .labels = r.labels,
                            .mixes = r.training ? r.mixes : nullptr,
                            .shape = shape,
                            .smoothing = r.training ? smoothing : 0,
                            .share = share,
                            .add = add});
}

void backward(const Context& r, const Head& head, ClassesShape shape, float smoothing,
              float share = 1) {
  r.run(CrossEntropyBackward{.dlogits = r.grad(head.logits),
                             .logits = r.at(head.logits),
                             .lse = r.floats(head.lse),
                             .labels = r.labels,
                             .mixes = r.mixes,
                             .state = r.state,
                             .shape = shape,
                             .smoothing = smoothing,
                             .share = share});
}

void count(const Context& r, Tensor logits, Tensor loss, ClassesShape shape) {
  if (r.sums)
    r.run(Metrics{.sums = r.sums,
                  .loss = r.floats(loss),
                  .logits = r.at(logits),
                  .labels = r.labels,
                  .shape = shape});
}

void write_tail(const Context& r, Tensor loss, Tensor top1, int B) {
  r.run(GradientTail{.tail = r.tail(), .loss = r.floats(loss), .top1 = r.floats(top1), .B = B});
}

}  // namespace

Tensor cross_entropy(Graph& g, Tensor logits, float smoothing) {
  const ClassesShape shape{.B = dim(g, logits, 0), .K = dim(g, logits, 1)};
  const Tensor loss = g.tensor("loss", {shape.B}, DType::fp32);
  const Head head = make_head(g, "loss", logits);
  g.grad(logits);
  g.add({"loss", "loss",
         [=](const Context& r) {
           forward(r, head, loss, shape, smoothing);
           count(r, logits, loss, shape);
         },
         [=](const Context& r) {
           backward(r, head, shape, smoothing);
           write_tail(r, loss, head.top1, shape.B);
         }});
  g.end_with(logits, loss);
  return loss;
}

Tensor distilled_cross_entropy(Graph& g, Tensor head, Tensor dist, float smoothing) {
  const ClassesShape shape{.B = dim(g, head, 0), .K = dim(g, head, 1)};
  const Tensor loss = g.tensor("loss", {shape.B}, DType::fp32);
  const Tensor logits = g.tensor("logits", {shape.B, shape.K});
  const Head mean = make_head(g, "loss mean", logits);
  const Head heads[] = {make_head(g, "loss head", head), make_head(g, "loss dist", dist)};
  for (const Head& each : heads) g.grad(each.logits);
  constexpr float half = .5f;
  g.add({"loss", "loss",
         [=](const Context& r) {
           r.run(MeanLogits{
               .out = r.at(logits), .head = r.at(head), .dist = r.at(dist), .shape = shape});
           forward(r, mean, loss, shape, smoothing);
           if (r.training) {  // replaces the mean's loss; its top1 stays in use
             forward(r, heads[0], loss, shape, smoothing, half);
             forward(r, heads[1], loss, shape, smoothing, half, true);
           }
           count(r, logits, loss, shape);
         },
         [=](const Context& r) {
           for (const Head& each : heads) backward(r, each, shape, smoothing, half);
           write_tail(r, loss, mean.top1, shape.B);
         }});
  g.end_with(logits, loss);
  return loss;
}

}  // namespace bv
