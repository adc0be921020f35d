#include "models/resnet.h"

#include <cmath>
#include <string>

namespace bv {
namespace {

// One block: x + branch(x); the first block of a stage projects x to the branch's shape.
struct Block {
  Graph& g;
  const ResnetConfig& c;
  std::string name;
  int channels, stride;

  BatchNormOut basic(const BatchNormOut& x) const {
    const ConvOut first = convolution(
        "conv1", x, {.channels = channels, .filter = 3, .stride = stride, .skip = true});
    const BatchNormOut inner = batchnorm(g, name + "bn1", first, {}, {});
    const ConvOut last = convolution("conv2", inner, {.channels = channels, .filter = 3});
    return add("bn2", last, first.skip);
  }

  BatchNormOut bottleneck(const BatchNormOut& x) const {
    const int width = channels * c.width_per_group / 64 * c.groups;
    const ConvOut first = convolution("conv1", x, {.channels = width, .filter = 1, .skip = true});
    BatchNormOut inner = batchnorm(g, name + "bn1", first, {}, {});
    const ConvOut middle = convolution(
        "conv2", inner, {.channels = width, .filter = 3, .stride = stride, .groups = c.groups});
    inner = batchnorm(g, name + "bn2", middle, {}, {});
    const ConvOut last = convolution("conv3", inner, {.channels = 4 * channels, .filter = 1});
    return add("bn3", last, first.skip);
  }

  ConvOut convolution(const char* layer, const BatchNormOut& inp, ConvOptions options) const {
    options.parts = c.parts;
    return conv(g, name + layer, inp, options);
  }

  BatchNormOut add(const char* norm, const ConvOut& branch, Tensor x) const {
    const std::vector<int64_t> from = g.info(x).shape, to = g.info(branch.out).shape;
    if (from != to) {
      const ConvOut projected =
          convolution("downsample.0", x,
                      {.channels = static_cast<int>(to.back()), .filter = 1, .stride = stride});
      x = batchnorm(g, name + "downsample.1", projected, {}, {.relu = false}).out;
    }
    return batchnorm(g, name + norm, branch, x, {.zero_weight = c.zero_init_last});
  }
};

}  // namespace

Resnet build_resnet(const ResnetConfig& c, const InputShape& input, DType dtype) {
  Graph g(dtype);
  const Tensor images = input_images(g, input, c.augment_layers);
  const ConvOut stem =
      conv(g, "conv1", images,
           {.channels = 64, .filter = 7, .stride = 2, .parts = c.parts, .input_grad = false});
  BatchNormOut x = max_pool(g, "maxpool", batchnorm(g, "bn1", stem, {}, {}).out, 3, 2);

  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < c.layers[static_cast<size_t>(stage)]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".";
      g.cut_here();
      const Block block{g, c, name, 64 << stage, stage > 0 && i == 0 ? 2 : 1};
      x = c.bottleneck ? block.bottleneck(x) : block.basic(x);
    }

  const Tensor pooled = dropout(g, "drop", average_pool(g, "avgpool", x.out), c.drop_rate, false);
  g.head_here();
  const float bound = 1 / std::sqrt(static_cast<float>(g.info(pooled).shape.back()));
  const Tensor logits =
      linear(g, "fc", pooled, {.N = c.classes, .init = {Init::uniform, bound, Init::uniform}});
  const Tensor loss = cross_entropy(g, logits, c.label_smoothing);
  g.finish();
  return {std::move(g), logits, loss};
}

}  // namespace bv
