// Operations that every model's training step has.
#include "bench/bench.h"

namespace bv::bench {

std::string shape(std::initializer_list<int> sizes) {
  std::string s;
  for (int extent : sizes) s += (s.empty() ? "" : "x") + std::to_string(extent);
  return s;
}

// ---- linear -------------------------------------------------------------------------------------
void bench_linear(Bench& bench, const Layer& l) {
  const std::string name = l.name, size = shape({l.M, l.N, l.K});
  const size_t inp = size_t(l.M) * l.K, out = size_t(l.M) * l.N, weight = size_t(l.N) * l.K;
  bench("linear_fwd " + name, size, l.per_step, [&] {
    return LinearForward{.out = bench.tensor(out),
                         .inp = bench.tensor(inp),
                         .weight = bench.tensor(weight),
                         .bias = l.bias ? bench.tensor(l.N) : nullptr,
                         .shape = {l.M, l.N, l.K},
                         .dtype = bench.dtype()};
  });
  if (l.needs_dinp)
    bench("linear_dinp " + name, size, l.per_step, [&] {
      return LinearBackwardInput{.dinp = bench.tensor(inp),
                                 .dout = bench.tensor(out),
                                 .weight = bench.tensor(weight),
                                 .shape = {l.M, l.N, l.K},
                                 .dtype = bench.dtype()};
    });
  bench("linear_dweight " + name, size, l.per_step, [&] {
    return LinearBackwardWeight{.dweight = bench.floats(weight),
                                .dbias = l.bias ? bench.floats(l.N) : nullptr,
                                .dout = bench.tensor(out),
                                .inp = bench.tensor(inp),
                                .shape = {l.M, l.N, l.K},
                                .dtype = bench.dtype()};
  });
}

// ---- loss, update -------------------------------------------------------------------------------
void bench_loss(Bench& bench, int B, int classes) {
  const size_t n = size_t(B) * classes;
  const std::string size = shape({B, classes});
  const auto labels = [&] { return bench.holding(std::vector<int32_t>(size_t(B), 7)); };
  bench("cross_entropy_fwd", size, 1, [&] {
    return CrossEntropyForward{.loss = bench.floats(B),
                               .lse = bench.floats(B),
                               .logits = bench.tensor(n),
                               .labels = labels(),
                               .shape = {B, classes},
                               .dtype = bench.dtype()};
  });
  bench("cross_entropy_bwd", size, 1, [&] {
    return CrossEntropyBackward{.dlogits = bench.tensor(n),
                                .logits = bench.tensor(n),
                                .lse = bench.floats(B),
                                .labels = labels(),
                                .params = bench.holding<StepParams>({{.grad_scale = 1}}),
                                .state = bench.holding<UpdateState>({{.loss_scale = 1}}),
                                .shape = {B, classes},
                                .dtype = bench.dtype()};
  });
  bench("metrics", size, 0, [&] {
    return Metrics{.sums = bench.holding(std::vector<double>(4)),
                   .loss = bench.floats(B),
                   .logits = bench.tensor(n),
                   .labels = labels(),
                   .shape = {B, classes},
                   .dtype = bench.dtype()};
  });
  bench("gradient_tail", shape({B}), 1, [&] {
    return GradientTail{.tail = bench.floats(3),
                        .loss = bench.floats(B),
                        .params = bench.holding<StepParams>({{}}),
                        .B = B};
  });
}

void bench_update(Bench& bench, size_t n, OptimizerKind of_a_step) {
  const std::string size = std::to_string(n);
  bench("gradient_norm", size, 1, [&] {
    return GradientNorm{.state = bench.holding<UpdateState>({{.loss_scale = 1}}),
                        .grad = bench.floats(n),
                        .params = bench.holding<StepParams>({{.divisor = 1}}),
                        .count = n};
  });
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    const bool adamw = kind == OptimizerKind::adamw;
    bench(adamw ? "optimizer adamw" : "optimizer sgd", size, kind == of_a_step, [&] {
      const size_t chunks = n / OptimizerUpdate::decay_chunk + 1;
      return OptimizerUpdate{
          .weight = bench.floats(n),
          .compute_weights = bench.dtype() == DType::fp32 ? nullptr : bench.tensor(n),
          .m = bench.floats(n),
          .v = adamw ? bench.floats(n, 0.25f) : nullptr,
          .state = bench.holding<UpdateState>({{.loss_scale = 1}}),
          .grad = bench.floats(n),
          .decay = bench.holding(std::vector<uint8_t>(chunks, 1)),
          .params = bench.holding<StepParams>({{.lr = 1e-4f, .divisor = 1}}),
          .count = n,
          .momentum = 0.9f,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8f,
          .weight_decay = 0.05f,
          .clip = 1,
          .kind = kind,
          .dtype = bench.dtype()};
    });
  }
}

}  // namespace bv::bench
