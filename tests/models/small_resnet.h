// A small residual network with every part of the real ones: a stem, a plain block, and a block
// with groups and a projection that halves the image.
#pragma once
#include "models/graph/nodes.h"

namespace bv::test {

inline Graph small_resnet(const InputShape& input, DType dtype, int classes, int parts = 1) {
  Graph g(dtype);
  const auto normed = [&](const std::string& name, const BatchNormOut& inp, ConvOptions o,
                          Tensor residual = {}) {
    o.parts = parts;
    return batchnorm(g, name + ".bn", conv(g, name + ".conv", inp, o), residual, {});
  };
  const BatchNormOut stem = normed("stem", input_images(g, input, 0),
                                   {.channels = 16, .filter = 7, .stride = 2, .input_grad = false});
  BatchNormOut x = max_pool(g, "pool", stem.out, 3, 2);

  g.cut_here();
  const ConvOut first =
      conv(g, "plain.1.conv", x, {.channels = 16, .filter = 3, .parts = parts, .skip = true});
  const BatchNormOut inner = batchnorm(g, "plain.1.bn", first, {}, {});
  x = normed("plain.2", inner, {.channels = 16, .filter = 3}, first.skip);

  g.cut_here();
  const ConvOut down =
      conv(g, "down.1.conv", x, {.channels = 16, .filter = 1, .parts = parts, .skip = true});
  BatchNormOut y = batchnorm(g, "down.1.bn", down, {}, {});
  y = normed("down.2", y, {.channels = 16, .filter = 3, .stride = 2, .groups = 2});
  const ConvOut third = conv(g, "down.3.conv", y, {.channels = 32, .filter = 1, .parts = parts});
  const ConvOut around = conv(g, "down.around.conv", down.skip,
                              {.channels = 32, .filter = 1, .stride = 2, .parts = parts});
  x = batchnorm(g, "down.3.bn", third, {around, "down.around.bn"}, {});

  const Tensor logits = linear(g, "fc", average_pool(g, "average", x.out),
                               {.N = classes, .init = {Init::uniform, .2f, Init::uniform}});
  cross_entropy(g, logits, 0);
  g.finish();
  return g;
}

}  // namespace bv::test
