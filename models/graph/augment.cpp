#include "models/graph/nodes.h"

namespace bv {

Tensor augment(Graph& g, const AugmentShape& s) {
  Tensor images;
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string name = "augment." + std::to_string(layer);
    const Tensor out = g.bytes(name, {s.B, s.size, s.size, 3});
    AugmentShape shape = s;
    shape.layer = layer;
    if (images) shape.height = shape.width = s.size;
    const auto forward = [=](const Context& r) {
      if (!r.training) return;
      r.run(AugmentImages{.out = static_cast<uint8_t*>(r.at(out)),
                          .images = images ? static_cast<const uint8_t*>(r.at(images)) : r.images,
                          .crops = images ? nullptr : r.crops,
                          .ops = r.ops,
                          .shape = shape});
    };
    g.add({name, "augment", forward});
    images = out;
  }
  return images;
}

}  // namespace bv
