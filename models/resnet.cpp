#include "models/resnet.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "models/graph/nodes.h"

namespace bv {
namespace {

constexpr int stem_filter = 7;

// One block: x + branch(x), with x projected if the branch changes its shape.
struct Block {
  Graph& g;
  const ResnetConfig& c;
  const GraphOptions& o;
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
    options.parts = o.parts;
    return conv(g, name + layer, inp, options);
  }

  BatchNormOut add(const char* norm, const ConvOut& branch, Tensor x) const {
    const std::vector<int64_t> from = g.info(x).shape, to = g.info(branch.out).shape;
    Residual residual = x;
    if (from != to)
      residual = {
          convolution("downsample.0", x,
                      {.channels = static_cast<int>(to.back()), .filter = 1, .stride = stride}),
          name + "downsample.1"};
    return batchnorm(g, name + norm, branch, residual, {.zero_weight = o.zero_init_last});
  }
};

}  // namespace

Graph build_resnet(const ResnetConfig& c, const GraphOptions& o, const InputShape& input,
                   DType dtype) {
  Graph g(dtype);
  const Tensor images = input_images(g, input, o.augment_layers);
  const ConvOut stem = conv(
      g, "conv1", images,
      {.channels = 64, .filter = stem_filter, .stride = 2, .parts = o.parts, .input_grad = false});
  BatchNormOut x = max_pool(g, "maxpool", batchnorm(g, "bn1", stem, {}, {}).out, 3, 2);

  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < c.layers[static_cast<size_t>(stage)]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".";
      g.cut_here();
      const Block block{g, c, o, name, 64 << stage, stage > 0 && i == 0 ? 2 : 1};
      x = c.bottleneck ? block.bottleneck(x) : block.basic(x);
    }

  const Tensor pooled = dropout(g, "drop", average_pool(g, "avgpool", x.out), o.drop_rate);
  g.head_here();
  const float bound = 1 / std::sqrt(static_cast<float>(g.info(pooled).shape.back()));
  const Tensor logits =
      linear(g, "fc", pooled, {.N = o.classes, .init = {Init::uniform, bound, Init::uniform}});
  cross_entropy(g, logits, o.label_smoothing);
  g.finish();
  return g;
}

namespace {

std::array<int, 4> stages(JsonReader& json) {
  std::array<int, 4> blocks;
  const auto values = json.numbers<4>("layers", "must be 4 numbers of blocks", 1, 1024);
  std::ranges::copy(values, blocks.begin());
  if (!std::ranges::equal(blocks, values)) json.fail("layers", "must be whole numbers");
  return blocks;
}

std::any read(JsonReader& json) {
  const std::string& block = json.text("block");
  if (block != "basic" && block != "bottleneck")
    json.fail("unknown 'block' " + printable(block) + "; must be basic or bottleneck");
  const ResnetConfig c{.bottleneck = block == "bottleneck",
                       .layers = stages(json),
                       .groups = json.whole("groups", 1024),
                       .width_per_group = json.whole("width_per_group", 1024)};
  if (!c.bottleneck && (c.groups != 1 || c.width_per_group != 64))
    json.fail("'groups' and 'width_per_group' need bottleneck blocks; basic blocks have 1 and 64");
  return c;
}

void check(const std::any&, const GraphOptions&, const std::string&, int image_size) {
  if (image_size < stem_filter)
    throw UserError("the image size " + std::to_string(image_size) +
                    " is smaller than the first convolution's filter of " +
                    std::to_string(stem_filter) + " x " + std::to_string(stem_filter) +
                    "; try --image-size 32");
}

std::vector<std::string> heads(const std::any&) { return {"fc"}; }

constexpr Refused refused[] = {{"patch_size", "patches"},
                               {"representation_size", "class token"},
                               {"pos_drop_rate", "position embedding"},
                               {"proj_drop_rate", "attention"},
                               {"attn_drop_rate", "attention"},
                               {"drop_path_rate", "stochastic depth"}};

Graph build(const std::any& sizes, const GraphOptions& o, const InputShape& input, DType dtype) {
  return build_resnet(std::any_cast<const ResnetConfig&>(sizes), o, input, dtype);
}

}  // namespace

extern constinit const ModelFamily resnet_family{.name = "resnet",
                                                 .batch_norm = true,
                                                 .refused = refused,
                                                 .read = read,
                                                 .check = check,
                                                 .heads = heads,
                                                 .build = build};

}  // namespace bv
