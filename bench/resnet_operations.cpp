// The operations of a ResNet's training step, at its shapes.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bench/bench.h"

namespace bv::bench {
namespace {

constexpr int classes = 1000;

struct Conv {
  ConvShape shape;
  bool operator==(const Conv& o) const {
    return shape.H == o.shape.H && shape.C == o.shape.C && shape.K == o.shape.K &&
           shape.R == o.shape.R && shape.stride == o.shape.stride;
  }
};
struct Norm {
  int rows, C;
  bool residual, relu;
  bool operator==(const Norm&) const = default;
};

// Of a convolution and the batch norm behind it. add: its backward adds the shortcut's gradient.
struct ConvOptions {
  bool residual = false, relu = true, add = false;
};

// What there is, and how often.
template <class T>
struct Counted {
  std::vector<std::pair<T, int>> list;
  int& operator[](const T& x) {
    const auto same = [&](const auto& entry) { return entry.first == x; };
    const auto found = std::find_if(list.begin(), list.end(), same);
    return found == list.end() ? list.emplace_back(x, 0).second : found->second;
  }
};

// Convolutions and batch norms of a model, as models/resnet.cpp builds it.
class Resnet {
 public:
  Resnet(const std::string& name, int B) : B_(B) {
    const bool bottleneck = name == "resnet50";
    if (!bottleneck && name != "resnet34") throw std::invalid_argument("no sizes of " + name);
    parameters = bottleneck ? 25557032 : 21797672;
    conv(64, 7, 2);
    size_ = 56;
    const int blocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage)
      for (int i = 0; i < blocks[stage]; ++i)
        block(64 << stage, bottleneck, stage > 0 && i == 0 ? 2 : 1);
  }

  Counted<Conv> convs, adding_convs;  // those that add, also by themselves
  Counted<Norm> norms;
  size_t parameters;
  int channels() const { return C_; }  // of the last block

 private:
  void conv(int K, int R, int stride, ConvOptions options = {}) {
    const Conv c{{B_, size_, size_, C_, K, R, R, stride, R / 2}};
    ++convs[c];
    if (options.add) ++adding_convs[c];
    size_ = c.shape.P(), C_ = K;
    ++norms[{B_ * size_ * size_, K, options.residual, options.relu}];
  }
  void block(int channels, bool bottleneck, int stride) {
    const int size = size_, C = C_, out = bottleneck ? 4 * channels : channels;
    if (stride > 1 || C != out) {
      conv(out, 1, stride, {.relu = false});
      size_ = size, C_ = C;
    }
    if (bottleneck) {
      conv(channels, 1, 1, {.add = true});
      conv(channels, 3, stride);
      conv(out, 1, 1, {.residual = true});
    } else {
      conv(channels, 3, stride, {.add = true});
      conv(channels, 3, 1, {.residual = true});
    }
  }

  int B_, size_ = 224, C_ = 3;
};

void bench_input(Bench& bench, int B) {
  bench("input_patches", shape({B, 224, 224, 3}), 1, [&] {
    const size_t bytes = size_t(B) * 224 * 224 * 3;
    return InputPatches{.out = bench.tensor(bytes),
                        .images = bench.holding(std::vector<uint8_t>(bytes, 100)),
                        .crops = bench.holding(std::vector<Crop>(size_t(B), Crop{0, 0, 1})),
                        .B = B,
                        .height = 224,
                        .width = 224,
                        .size = 224,
                        .patch = 1,
                        .mean = {0.5f, 0.5f, 0.5f},
                        .std = {0.5f, 0.5f, 0.5f},
                        .dtype = bench.dtype()};
  });
}

void bench_conv(Bench& bench, const ConvShape& s, int per_step, int adding) {
  const auto inp = size_t(s.inp_count()), out = size_t(s.out_count()),
             weight = size_t(s.weight_count());
  const std::string kind = " " + shape({s.R, s.S}) + "/" + std::to_string(s.stride);
  const std::string size = shape({s.N, s.H, s.W, s.C}) + "-" + std::to_string(s.K);
  bench("conv_fwd" + kind, size, per_step, [&] {
    return ConvForward{.out = bench.tensor(out),
                       .moments = bench.floats(2 * size_t(s.K)),
                       .inp = bench.tensor(inp),
                       .weight = bench.tensor(weight),
                       .shape = s,
                       .dtype = bench.dtype()};
  });
  for (const bool add : {false, true}) {
    const int calls = add ? adding : per_step - adding;
    if (s.C == 3 || calls == 0) continue;  // the stem's images have no gradient
    bench("conv_dinp" + kind + (add ? " +add" : ""), size, calls, [&] {
      return ConvBackwardInput{.dinp = bench.tensor(inp),
                               .dout = bench.tensor(out),
                               .add = add ? bench.tensor(inp) : nullptr,
                               .weight = bench.tensor(weight),
                               .shape = s,
                               .dtype = bench.dtype()};
    });
  }
  bench("conv_dweight" + kind, size, per_step, [&] {
    return ConvBackwardWeight{.dweight = bench.floats(weight),
                              .dout = bench.tensor(out),
                              .inp = bench.tensor(inp),
                              .shape = s,
                              .dtype = bench.dtype()};
  });
}

void bench_norm(Bench& bench, const Norm& s, int per_step) {
  const int rows = s.rows, C = s.C;
  const size_t n = size_t(rows) * C;
  const std::string kind = s.residual ? " +residual" : s.relu ? "" : " no relu";
  bench("batchnorm_fwd" + kind, shape({rows, C}), per_step, [&] {
    return BatchNormForward{.out = bench.tensor(n),
                            .mean = bench.floats(C),
                            .rstd = bench.floats(C),
                            .running_mean = bench.floats(C),
                            .running_var = bench.floats(C, 0.25f),
                            .inp = bench.tensor(n),
                            .residual = s.residual ? bench.tensor(n) : nullptr,
                            .moments = bench.floats(2 * size_t(C), 0.25f),
                            .weight = bench.floats(C),
                            .bias = bench.floats(C),
                            .shape = {rows, C},
                            .parts = 1,
                            .eps = 1e-5f,
                            .momentum = 0.1f,
                            .relu = s.relu,
                            .dtype = bench.dtype()};
  });
  bench("batchnorm_sums" + kind, shape({rows, C}), per_step, [&] {
    return BatchNormBackwardSums{.sums = bench.floats(2 * size_t(C)),
                                 .dweight = bench.floats(C),
                                 .dbias = bench.floats(C),
                                 .g = s.residual ? bench.tensor(n) : nullptr,
                                 .dout = bench.tensor(n),
                                 .out = s.residual ? bench.tensor(n) : nullptr,
                                 .inp = bench.tensor(n),
                                 .mean = bench.floats(C),
                                 .rstd = bench.floats(C),
                                 .weight = bench.floats(C),
                                 .bias = bench.floats(C),
                                 .shape = {rows, C},
                                 .relu = s.relu,
                                 .dtype = bench.dtype()};
  });
  bench("batchnorm_bwd" + kind, shape({rows, C}), per_step, [&] {
    return BatchNormBackward{.dinp = bench.tensor(n),
                             .sums = bench.floats(2 * size_t(C)),
                             .dout = bench.tensor(n),
                             .inp = bench.tensor(n),
                             .mean = bench.floats(C),
                             .rstd = bench.floats(C),
                             .weight = bench.floats(C),
                             .bias = bench.floats(C),
                             .shape = {rows, C},
                             .parts = 1,
                             .relu = s.relu && !s.residual,
                             .dtype = bench.dtype()};
  });
}

void bench_pools(Bench& bench, int B, int channels) {
  constexpr int H = 112, C = 64;
  const auto forward = [&] {
    MaxPoolForward op{};
    op.N = B, op.H = op.W = H, op.C = C, op.R = 3, op.stride = 2, op.padding = 1;
    const size_t out = size_t(B) * op.P() * op.Q() * C;
    op.out = bench.tensor(out), op.index = bench.holding(std::vector<uint8_t>(out));
    op.inp = bench.tensor(size_t(B) * H * H * C), op.dtype = bench.dtype();
    return op;
  };
  bench("max_pool_fwd", shape({B, H, H, C}), 1, forward);
  bench("max_pool_bwd", shape({B, H, H, C}), 1, [&] {
    const MaxPoolForward before = forward();
    bench.run_once(before);  // backward reads its index
    return MaxPoolBackward{.dinp = bench.tensor(size_t(B) * H * H * C),
                           .dout = before.out,
                           .index = before.index,
                           .shape = {B, H, H, C, before.R, before.stride, before.padding},
                           .dtype = bench.dtype()};
  });
  constexpr int positions = 49;
  const size_t pooled = size_t(B) * channels, n = positions * pooled;
  bench("average_pool_fwd", shape({B, positions, channels}), 1, [&] {
    return AveragePoolForward{.out = bench.tensor(pooled),
                              .inp = bench.tensor(n),
                              .shape = {B, positions, channels},
                              .dtype = bench.dtype()};
  });
  bench("average_pool_bwd", shape({B, positions, channels}), 1, [&] {
    return AveragePoolBackward{.dinp = bench.tensor(n),
                               .dout = bench.tensor(pooled),
                               .shape = {B, positions, channels},
                               .dtype = bench.dtype()};
  });
}

}  // namespace

void bench_resnet(Bench& bench, const std::string& model, int B) {
  Resnet net(model, B);
  bench_input(bench, B);
  for (const auto& [conv, per_step] : net.convs.list)
    bench_conv(bench, conv.shape, per_step, net.adding_convs[conv]);
  for (const auto& [norm, per_step] : net.norms.list) bench_norm(bench, norm, per_step);
  bench_pools(bench, B, net.channels());
  bench_linear(bench, {"head", B, classes, net.channels(), 1, true, true});
  bench_loss(bench, B, classes);
  bench_update(bench, net.parameters, OptimizerKind::sgd);
}

}  // namespace bv::bench
