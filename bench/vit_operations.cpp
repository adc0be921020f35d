// The operations of a ViT's training step, at its shapes.
#include <stdexcept>

#include "bench/bench.h"

namespace bv::bench {
namespace {

// By the field's letters; 224 pixels in patches of 16.
constexpr int P = 196, N = 197, classes = 1000;
struct Vit {
  int C, H, D, mlp, depth;
  size_t parameters;
};

Vit vit_named(const std::string& name) {
  if (name == "vit_tiny") return {192, 3, 64, 768, 12, 5717416};
  if (name == "vit_large") return {1024, 16, 64, 4096, 24, 304326632};
  throw std::invalid_argument("no sizes of " + name + " here");
}

// ---- input, tokens ------------------------------------------------------------------------------
void bench_tokens(Bench& bench, const Vit& vit, int B) {
  const int C = vit.C;
  const size_t patches = size_t(B) * P * C, tokens = size_t(B) * N * C, positions = size_t(N) * C;
  bench("input_patches", shape({B, 224, 224, 3}), 1, [&] {
    const size_t bytes = size_t(B) * 224 * 224 * 3;
    return InputPatches{.out = bench.tensor(bytes),
                        .images = bench.holding(std::vector<uint8_t>(bytes, 100)),
                        .crops = bench.holding(std::vector<Crop>(size_t(B), Crop{0, 0, 1})),
                        .B = B,
                        .height = 224,
                        .width = 224,
                        .size = 224,
                        .patch = 16,
                        .mean = {0.5f, 0.5f, 0.5f},
                        .std = {0.5f, 0.5f, 0.5f},
                        .dtype = bench.dtype()};
  });
  bench("embed_forward", shape({B, P, C}), 1, [&] {
    return EmbedForward{.out = bench.tensor(tokens),
                        .patches = bench.tensor(patches),
                        .class_token = bench.floats(C),
                        .position = bench.floats(positions),
                        .shape = {B, P, C},
                        .dtype = bench.dtype()};
  });
  bench("embed_backward", shape({B, P, C}), 1, [&] {
    return EmbedBackward{.dpatches = bench.tensor(patches),
                         .dclass_token = bench.floats(C),
                         .dposition = bench.floats(positions),
                         .dout = bench.tensor(tokens),
                         .shape = {B, P, C},
                         .dtype = bench.dtype()};
  });
  bench("class_token_forward", shape({B, N, C}), 1, [&] {
    return ClassTokenForward{.out = bench.tensor(size_t(B) * C),
                             .inp = bench.tensor(tokens),
                             .shape = {B, N, C},
                             .dtype = bench.dtype()};
  });
  bench("class_token_backward", shape({B, N, C}), 1, [&] {
    return ClassTokenBackward{.dinp = bench.tensor(tokens),
                              .dout = bench.tensor(size_t(B) * C),
                              .shape = {B, N, C},
                              .dtype = bench.dtype()};
  });
  for (const int group : {1, N * C})
    bench(group == 1 ? "dropout" : "dropout (a path)", shape({B, N, C}), 0, [&] {
      return Dropout{.out = bench.tensor(tokens),
                     .inp = bench.tensor(tokens),
                     .params = bench.holding<StepParams>({{}}),
                     .shape = {B, N * C, group},
                     .drop = 0.1f,
                     .dtype = bench.dtype()};
    });
}

// ---- rows ---------------------------------------------------------------------------------------
void bench_gelu(Bench& bench, const Vit& vit, int rows) {
  const size_t n = size_t(rows) * vit.mlp;
  bench("gelu_forward", shape({rows, vit.mlp}), vit.depth, [&] {
    return BiasGeluForward{.out = bench.tensor(n),
                           .inp = bench.tensor(n),
                           .bias = bench.tensor(vit.mlp),
                           .shape = {rows, vit.mlp},
                           .dtype = bench.dtype()};
  });
  bench("gelu_backward", shape({rows, vit.mlp}), vit.depth, [&] {
    return BiasGeluBackward{.dinp = bench.tensor(n),
                            .dbias = bench.floats(vit.mlp),
                            .dout = bench.tensor(n),
                            .inp = bench.tensor(n),
                            .bias = bench.tensor(vit.mlp),
                            .shape = {rows, vit.mlp},
                            .dtype = bench.dtype()};
  });
}

void bench_layernorm(Bench& bench, const Vit& vit, int rows) {
  const int C = vit.C;
  const size_t n = size_t(rows) * C;
  for (const bool residual : {false, true}) {
    const int per_step = residual ? 2 * vit.depth : 1;
    bench(residual ? "layernorm_fwd +residual" : "layernorm_fwd", shape({rows, C}), per_step, [&] {
      return LayerNormForward{.out = bench.tensor(n),
                              .sum = residual ? bench.tensor(n) : nullptr,
                              .mean = bench.floats(rows),
                              .rstd = bench.floats(rows),
                              .inp = bench.tensor(n),
                              .residual = residual ? bench.tensor(n) : nullptr,
                              .weight = bench.floats(C),
                              .bias = bench.floats(C),
                              .shape = {rows, C},
                              .eps = 1e-6f,
                              .dtype = bench.dtype()};
    });
    bench(residual ? "layernorm_bwd +dsum" : "layernorm_bwd", shape({rows, C}), per_step, [&] {
      return LayerNormBackward{.dinp = bench.tensor(n),
                               .dweight = bench.floats(C),
                               .dbias = bench.floats(C),
                               .dout = bench.tensor(n),
                               .dsum = residual ? bench.tensor(n) : nullptr,
                               .sum = bench.tensor(n),
                               .mean = bench.floats(rows),
                               .rstd = bench.floats(rows),
                               .weight = bench.floats(C),
                               .shape = {rows, C},
                               .dtype = bench.dtype()};
    });
  }
}

void bench_attention(Bench& bench, const Vit& vit, int B) {
  const size_t n = size_t(B) * N * vit.H * vit.D, lse = size_t(B) * vit.H * N;
  for (const float drop : {0.0f, 0.1f}) {
    const int per_step = drop == 0 ? vit.depth : 0;
    const std::string size = shape({B, N, vit.H, vit.D}), with = drop == 0 ? "" : " dropout";
    const auto forward = [&] {
      return AttentionForward{.out = bench.tensor(n),
                              .lse = bench.floats(lse),
                              .qkv = bench.tensor(3 * n),
                              .params = bench.holding<StepParams>({{}}),
                              .shape = {B, N, vit.H, vit.D},
                              .drop = drop,
                              .dtype = bench.dtype()};
    };
    bench("attention_fwd" + with, size, per_step, forward);
    bench("attention_bwd" + with, size, per_step, [&] {
      const AttentionForward before = forward();
      bench.run_once(before);  // backward reads what it saves
      return AttentionBackward{.dqkv = bench.tensor(3 * n),
                               .dout = bench.tensor(n),
                               .qkv = before.qkv,
                               .out = before.out,
                               .lse = before.lse,
                               .params = before.params,
                               .shape = {B, N, vit.H, vit.D},
                               .drop = drop,
                               .dtype = bench.dtype()};
    });
  }
}

}  // namespace

void bench_vit(Bench& bench, const std::string& model, int B) {
  const Vit vit = vit_named(model);
  const int rows = B * N, C = vit.C;
  bench_tokens(bench, vit, B);
  for (const Layer& layer : {Layer{"patches", B * P, C, 768, 1, true, false},
                             {"qkv", rows, 3 * C, C, vit.depth, true, true},
                             {"proj", rows, C, C, vit.depth, true, true},
                             {"fc1", rows, vit.mlp, C, vit.depth, false, true},
                             {"fc2", rows, C, vit.mlp, vit.depth, true, true},
                             {"head", B, classes, C, 1, true, true}})
    bench_linear(bench, layer);
  bench_gelu(bench, vit, rows);
  bench_layernorm(bench, vit, rows);
  bench_attention(bench, vit, B);
  bench_loss(bench, B, classes);
  bench_update(bench, vit.parameters, OptimizerKind::adamw);
}

}  // namespace bv::bench
