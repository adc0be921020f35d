#include "models/resnet.h"

#include <cmath>
#include <string>

namespace bv {
namespace {

// One block: x + branch(x); the first block of a stage projects x to the branch's shape.
class Block {
 public:
  Block(Graph& g, const ResnetConfig& c, std::string name, int channels, int stride)
      : g_(g), c_(c), name_(std::move(name)), channels_(channels), stride_(stride) {}

  Tensor basic(Tensor x) const {
    const ConvOut first = convolution(
        "conv1", x, {.channels = channels_, .filter = 3, .stride = stride_, .skip = true});
    const Tensor inner = batchnorm(g_, name_ + "bn1", first, {}, {});
    const ConvOut last = convolution("conv2", inner, {.channels = channels_, .filter = 3});
    return add("bn2", last, first.skip);
  }

  Tensor bottleneck(Tensor x) const {
    const int width = channels_ * c_.width_per_group / 64 * c_.groups;
    const ConvOut first = convolution("conv1", x, {.channels = width, .filter = 1, .skip = true});
    Tensor inner = batchnorm(g_, name_ + "bn1", first, {}, {});
    const ConvOut middle = convolution(
        "conv2", inner, {.channels = width, .filter = 3, .stride = stride_, .groups = c_.groups});
    inner = batchnorm(g_, name_ + "bn2", middle, {}, {});
    const ConvOut last = convolution("conv3", inner, {.channels = 4 * channels_, .filter = 1});
    return add("bn3", last, first.skip);
  }

 private:
  ConvOut convolution(const char* name, Tensor inp, ConvOptions options) const {
    options.parts = c_.parts;
    return conv(g_, name_ + name, inp, options);
  }

  Tensor add(const char* norm, const ConvOut& branch, Tensor x) const {
    const std::vector<int64_t> from = g_.info(x).shape, to = g_.info(branch.out).shape;
    if (from != to) {
      const ConvOut projected =
          convolution("downsample.0", x,
                      {.channels = static_cast<int>(to.back()), .filter = 1, .stride = stride_});
      x = batchnorm(g_, name_ + "downsample.1", projected, {}, {.relu = false});
    }
    return batchnorm(g_, name_ + norm, branch, x, {.zero_weight = c_.zero_init_last});
  }

  Graph& g_;
  const ResnetConfig& c_;
  std::string name_;
  int channels_, stride_;
};

}  // namespace

Resnet build_resnet(const ResnetConfig& c, const InputShape& input, DType dtype) {
  Graph g(dtype);
  const Tensor images = input_images(g, input);
  const ConvOut stem =
      conv(g, "conv1", images,
           {.channels = 64, .filter = 7, .stride = 2, .parts = c.parts, .input_grad = false});
  Tensor x = batchnorm(g, "bn1", stem, {}, {});
  x = max_pool(g, "maxpool", x, 3, 2);

  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < c.layers[static_cast<size_t>(stage)]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".";
      g.cut_here();
      const Block block(g, c, name, 64 << stage, stage > 0 && i == 0 ? 2 : 1);
      x = c.bottleneck ? block.bottleneck(x) : block.basic(x);
    }

  const Tensor pooled = dropout(g, "drop", average_pool(g, "avgpool", x), c.drop_rate, false);
  const float bound = 1 / std::sqrt(static_cast<float>(g.info(pooled).shape.back()));
  const Tensor logits =
      linear(g, "fc", pooled, {.N = c.classes, .init = {Init::uniform, bound, Init::uniform}});
  const Tensor loss = cross_entropy(g, logits, c.label_smoothing);
  g.finish();
  return {std::move(g), logits, loss};
}

}  // namespace bv
