// make bench: the time of every operation of kernels.h at ViT-Tiny's shapes (224 pixels, patches of
// 16), beside what copying memory and multiplying matrices reach on the same machine.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "kernels/cpu/backend.h"

namespace bv {
namespace {

struct Options {
  int batch = 16;
  std::string filter;
  double seconds = 0.15;  // for each operation
};

// ViT-Tiny, by the field's letters.
constexpr int N = 197, P = 196, C = 192, H = 3, D = 64, mlp = 768, classes = 1000, depth = 12;
constexpr int parameters = 5717416;

class Bench {
 public:
  Bench(Backend& backend, const Ceilings& ceilings, Options options)
      : backend_(backend), ceilings_(ceilings), options_(std::move(options)) {}

  // Memory lives until release().
  template <class T = void>
  T* zeros(size_t bytes) {
    memory_.emplace_back(backend_, bytes);
    backend_.zero(memory_.back().data(), bytes, nullptr);
    return static_cast<T*>(static_cast<void*>(memory_.back().data()));
  }
  template <class T>
  T* holding(const std::vector<T>& values) {
    T* p = zeros<T>(values.size() * sizeof(T));
    backend_.to_device(p, values.data(), values.size() * sizeof(T), nullptr);
    backend_.synchronize(nullptr);
    return p;
  }
  // Uniform in [lowest, 1).
  float* random(size_t n, float lowest = -1) {
    std::vector<float> values(n);
    uint32_t state = 1;
    for (float& v : values) {
      state = state * 1664525u + 1013904223u;
      v = lowest + (1 - lowest) * float(state >> 8) * 0x1p-24f;
    }
    return holding(values);
  }
  void release() { memory_.clear(); }

  // Prints a line of the table. per_step: how often a training step runs it.
  template <class Op>
  void operator()(const char* name, const std::string& shape, int per_step, Op op) {
    if (std::string(name).find(options_.filter) == std::string::npos) return;
    Kernels& kernels = backend_.kernels();
    if constexpr (requires { op.workspace; }) op.workspace = zeros(kernels.workspace_bytes(op));
    const Timing t = measure(backend_, options_.seconds, [&] { kernels.run(op, Stream{nullptr}); });
    print(name, shape, per_step, op.cost(), t);
  }
  template <class Op>
  void run_once(Op op) {
    if constexpr (requires { op.workspace; })
      op.workspace = zeros(backend_.kernels().workspace_bytes(op));
    backend_.kernels().run(op, nullptr);
  }

  void print_head() const {
    std::printf("%-23s %-20s %9s %7s %5s %8s %5s %6s %5s %8s\n", "operation", "shape", "us", "GB/s",
                "%copy", "GFLOP/s", "%prod", "%bound", "calls", "ms/step");
  }
  void print_totals() const {
    std::printf("%-23s %-20s %9s %7s %5s %8.1f %5.1f %6.1f %5s %8.2f\n", "a training step", "", "",
                "", "", flops_ / seconds_ / 1e9,
                100 * flops_ / seconds_ / ceilings_.product_flops_per_second,
                100 * bound_ / seconds_, "", 1e3 * seconds_);
  }

 private:
  // %bound: of the time that the ceilings alone would take, both for itself.
  void print(const char* name, const std::string& shape, int per_step, Cost cost, Timing t) {
    const double copy = cost.bytes / ceilings_.copy_bytes_per_second,
                 product = cost.flops / ceilings_.product_flops_per_second;
    const double bound = std::max(copy, product);
    std::printf("%-23s %-20s %9.1f %7.2f %5.1f %8.1f %5.1f %6.1f %5d %8.2f\n", name, shape.c_str(),
                1e6 * t.median, cost.bytes / t.median / 1e9, 100 * copy / t.median,
                cost.flops / t.median / 1e9, 100 * product / t.median, 100 * bound / t.median,
                per_step, 1e3 * per_step * t.median);
    std::fflush(stdout);
    seconds_ += per_step * t.median, bound_ += per_step * bound, flops_ += per_step * cost.flops;
  }

  Backend& backend_;
  Ceilings ceilings_;
  Options options_;
  std::vector<DeviceMemory> memory_;
  double seconds_ = 0, bound_ = 0, flops_ = 0;
};

std::string shape(std::initializer_list<int> sizes) {
  std::string s;
  for (int extent : sizes) s += (s.empty() ? "" : "x") + std::to_string(extent);
  return s;
}

// ---- input, tokens ------------------------------------------------------------------------------
void bench_tokens(Bench& bench, int B) {
  const size_t tokens = size_t(B) * N * C;
  float* rows = bench.random(tokens);
  float* out = bench.random(size_t(B) * 3 * 224 * 224);
  float* parameter = bench.random(size_t(N) * C);
  bench("input_patches", shape({B, 224, 224, 3}), 1,
        InputPatches{.out = out,
                     .images = bench.holding(std::vector<uint8_t>(size_t(B) * 224 * 224 * 3, 100)),
                     .crops = bench.holding(std::vector<Crop>(size_t(B), Crop{0, 0, 1})),
                     .B = B,
                     .height = 224,
                     .width = 224,
                     .size = 224,
                     .patch = 16,
                     .mean = {0.5f, 0.5f, 0.5f},
                     .std = {0.5f, 0.5f, 0.5f}});
  bench("embed_forward", shape({B, P, C}), 1,
        EmbedForward{.out = out,
                     .patches = rows,
                     .class_token = parameter,
                     .position = parameter,
                     .B = B,
                     .P = P,
                     .C = C});
  bench("embed_backward", shape({B, P, C}), 1,
        EmbedBackward{.dpatches = out,
                      .dclass_token = bench.random(C),
                      .dposition = parameter,
                      .dout = rows,
                      .B = B,
                      .P = P,
                      .C = C});
  bench("class_token_forward", shape({B, N, C}), 1,
        ClassTokenForward{.out = out, .inp = rows, .B = B, .N = N, .C = C});
  bench("class_token_backward", shape({B, N, C}), 1,
        ClassTokenBackward{.dinp = out, .dout = rows, .B = B, .N = N, .C = C});
  const auto* params = bench.holding<StepParams>({{}});
  bench("dropout", shape({B, N, C}), 0,
        Dropout{.out = out,
                .inp = rows,
                .params = params,
                .B = B,
                .elements = N * C,
                .group = 1,
                .drop = 0.1f});
  bench("dropout (a path)", shape({B, N, C}), 0,
        Dropout{.out = out,
                .inp = rows,
                .params = params,
                .B = B,
                .elements = N * C,
                .group = N * C,
                .drop = 0.1f});
  bench.release();
}

// ---- linear -------------------------------------------------------------------------------------
struct Layer {
  const char* name;
  int M, N, K, per_step;
  bool bias, needs_dinp;
};

void bench_linear(Bench& bench, const Layer& l) {
  const std::string name = l.name, size = shape({l.M, l.N, l.K});
  float* inp = bench.random(size_t(l.M) * l.K);
  float* out = bench.random(size_t(l.M) * l.N);
  float* weight = bench.random(size_t(l.N) * l.K);
  float* bias = l.bias ? bench.random(l.N) : nullptr;
  bench(("linear_fwd " + name).c_str(), size, l.per_step,
        LinearForward{
            .out = out, .inp = inp, .weight = weight, .bias = bias, .M = l.M, .N = l.N, .K = l.K});
  if (l.needs_dinp)
    bench(("linear_dinp " + name).c_str(), size, l.per_step,
          LinearBackwardInput{
              .dinp = inp, .dout = out, .weight = weight, .M = l.M, .N = l.N, .K = l.K});
  bench(
      ("linear_dweight " + name).c_str(), size, l.per_step,
      LinearBackwardWeight{
          .dweight = weight, .dbias = bias, .dout = out, .inp = inp, .M = l.M, .N = l.N, .K = l.K});
  bench.release();
}

// ---- rows ---------------------------------------------------------------------------------------
void bench_gelu(Bench& bench, int rows) {
  const size_t n = size_t(rows) * mlp;
  float *out = bench.random(n), *inp = bench.random(n), *bias = bench.random(mlp);
  bench("gelu_forward", shape({rows, mlp}), depth,
        BiasGeluForward{.out = out, .inp = inp, .bias = bias, .rows = rows, .C = mlp});
  bench("gelu_backward", shape({rows, mlp}), depth,
        BiasGeluBackward{.dinp = out,
                         .dbias = bench.random(mlp),
                         .dout = bench.random(n),
                         .inp = inp,
                         .bias = bias,
                         .rows = rows,
                         .C = mlp});
  bench.release();
}

void bench_layernorm(Bench& bench, int rows) {
  const size_t n = size_t(rows) * C;
  float *out = bench.random(n), *sum = bench.random(n), *inp = bench.random(n),
        *residual = bench.random(n), *mean = bench.random(rows), *rstd = bench.random(rows),
        *weight = bench.random(C), *bias = bench.random(C);
  LayerNormForward forward{.out = out,
                           .mean = mean,
                           .rstd = rstd,
                           .inp = inp,
                           .weight = weight,
                           .bias = bias,
                           .rows = rows,
                           .C = C,
                           .eps = 1e-6f};
  bench("layernorm_fwd", shape({rows, C}), 1, forward);
  forward.residual = residual, forward.sum = sum;
  bench("layernorm_fwd +residual", shape({rows, C}), 2 * depth, forward);
  LayerNormBackward backward{.dinp = inp,
                             .dweight = bench.random(C),
                             .dbias = bench.random(C),
                             .dout = out,
                             .sum = sum,
                             .mean = mean,
                             .rstd = rstd,
                             .weight = weight,
                             .rows = rows,
                             .C = C};
  bench("layernorm_bwd", shape({rows, C}), 1, backward);
  backward.dsum = residual;
  bench("layernorm_bwd +dsum", shape({rows, C}), 2 * depth, backward);
  bench.release();
}

void bench_attention(Bench& bench, int B) {
  const size_t n = size_t(B) * N * H * D;
  for (const float drop : {0.0f, 0.1f}) {
    float *qkv = bench.random(3 * n), *out = bench.random(n),
          *lse = bench.random(size_t(B) * H * N);
    const auto* params = bench.holding<StepParams>({{}});
    const int per_step = drop == 0 ? depth : 0;
    const AttentionForward forward{.out = out,
                                   .lse = lse,
                                   .qkv = qkv,
                                   .params = params,
                                   .B = B,
                                   .N = N,
                                   .H = H,
                                   .D = D,
                                   .drop = drop};
    bench(drop == 0 ? "attention_fwd" : "attention_fwd dropout", shape({B, N, H, D}), per_step,
          forward);
    bench.run_once(forward);  // backward reads what it saves
    bench(drop == 0 ? "attention_bwd" : "attention_bwd dropout", shape({B, N, H, D}), per_step,
          AttentionBackward{.dqkv = bench.random(3 * n),
                            .dout = bench.random(n),
                            .qkv = qkv,
                            .out = out,
                            .lse = lse,
                            .params = params,
                            .B = B,
                            .N = N,
                            .H = H,
                            .D = D,
                            .drop = drop});
    bench.release();
  }
}

// ---- loss, update -------------------------------------------------------------------------------
void bench_loss(Bench& bench, int B) {
  float *logits = bench.random(size_t(B) * classes), *loss = bench.random(B),
        *lse = bench.random(B);
  const auto* labels = bench.holding(std::vector<int32_t>(size_t(B), 7));
  const auto* params = bench.holding<StepParams>({{.grad_scale = 1}});
  const auto* state = bench.holding<UpdateState>({{.loss_scale = 1}});
  bench("cross_entropy_fwd", shape({B, classes}), 1,
        CrossEntropyForward{
            .loss = loss, .lse = lse, .logits = logits, .labels = labels, .B = B, .K = classes});
  bench("cross_entropy_bwd", shape({B, classes}), 1,
        CrossEntropyBackward{.dlogits = bench.random(size_t(B) * classes),
                             .logits = logits,
                             .lse = lse,
                             .labels = labels,
                             .params = params,
                             .state = state,
                             .B = B,
                             .K = classes});
  bench("metrics", shape({B, classes}), 0,
        Metrics{.sums = bench.zeros<double>(4 * sizeof(double)),
                .loss = loss,
                .logits = logits,
                .labels = labels,
                .B = B,
                .K = classes});
  bench("gradient_tail", shape({B}), 1,
        GradientTail{.tail = bench.random(3), .loss = loss, .params = params, .B = B});
  bench.release();
}

void bench_update(Bench& bench) {
  const size_t n = parameters;
  float *weight = bench.random(n), *grad = bench.random(n), *m = bench.random(n),
        *v = bench.random(n, 0.25f);
  const auto* params = bench.holding<StepParams>({{.lr = 1e-4f, .divisor = 1}});
  UpdateState* state = bench.holding<UpdateState>({{.loss_scale = 1}});
  bench("gradient_norm", shape({parameters}), 1,
        GradientNorm{.state = state, .grad = grad, .params = params, .count = n});
  OptimizerUpdate update{
      .weight = weight,
      .m = m,
      .v = v,
      .state = state,
      .grad = grad,
      .decay = bench.holding(std::vector<uint8_t>(n / OptimizerUpdate::decay_chunk + 1, 1)),
      .params = params,
      .count = n,
      .momentum = 0.9f,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8f,
      .weight_decay = 0.05f,
      .clip = 1,
      .kind = OptimizerKind::adamw};
  bench("optimizer adamw", shape({parameters}), 1, update);
  update.kind = OptimizerKind::sgd;
  bench("optimizer sgd", shape({parameters}), 0, update);
  bench.release();
}

void bench_all(const Options& options) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(omp_get_max_threads(), false);
  double load = 0;  // other work on the machine spoils every figure
  if (getloadavg(&load, 1) != 1) load = 0;
  const Ceilings ceilings = measure_cpu_ceilings(*backend);
  std::printf("device: %s; load average at start %.1f\n", backend->describe().c_str(), load);
  std::printf("ceilings: copy %.1f GB/s, matrix product %.0f GFLOP/s (%s)\n",
              ceilings.copy_bytes_per_second / 1e9, ceilings.product_flops_per_second / 1e9,
              ceilings.product.c_str());
  std::printf("model: vit_tiny, 224 pixels, patches of 16, batch %d, fp32\n\n", options.batch);
  Bench bench(*backend, ceilings, options);
  bench.print_head();
  const int B = options.batch, rows = B * N;
  bench_tokens(bench, B);
  for (const Layer& layer : {Layer{"patches", B * P, C, 768, 1, true, false},
                             {"qkv", rows, 3 * C, C, depth, true, true},
                             {"proj", rows, C, C, depth, true, true},
                             {"fc1", rows, mlp, C, depth, false, true},
                             {"fc2", rows, C, mlp, depth, true, true},
                             {"head", B, classes, C, 1, true, true}})
    bench_linear(bench, layer);
  bench_gelu(bench, rows);
  bench_layernorm(bench, rows);
  bench_attention(bench, B);
  bench_loss(bench, B);
  bench_update(bench);
  if (options.filter.empty()) bench.print_totals();
}

constexpr const char* usage =
    "usage: bench [--batch N] [--filter WORD] [--seconds S]\n"
    "  --batch    images in a batch (16)\n"
    "  --filter   only operations with WORD in their name\n"
    "  --seconds  of measurement for each operation (0.15)\n";

// False: not understood.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    const std::string name = argv[i];
    char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    if (name == "--filter") {
      options.filter = argv[i + 1];
    } else if (name == "--batch") {
      options.batch = int(std::strtol(argv[i + 1], &end, 10));
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[i + 1], &end);
    } else {
      return false;
    }
    if (*end) return false;
  }
  return options.batch > 0 && options.batch <= 1024 && options.seconds > 0;
}

}  // namespace
}  // namespace bv

int main(int argc, char** argv) {
  bv::Options options;
  if (!bv::parse(argc, argv, options)) {
    std::fputs(bv::usage, stderr);
    return 2;
  }
  try {
    bv::bench_all(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
