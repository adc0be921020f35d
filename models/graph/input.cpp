#include "models/graph/nodes.h"

namespace bv {
namespace {

Tensor add_input(Graph& g, const InputShape& s, int augment_layers,
                 const std::function<Tensor()>& make_out) {
  const Tensor augmented = augment(g, {.B = s.B,
                                       .height = s.height,
                                       .width = s.width,
                                       .size = s.size,
                                       .layer = 0,
                                       .layers = augment_layers});
  const Tensor out = make_out();
  const auto forward = [=](const Context& r) {
    InputPatches op{.out = r.at(out),
                    .images = r.images,
                    .crops = r.crops,
                    .mixes = r.training ? r.mixes : nullptr,
                    .shape = s};
    if (augmented || !r.training) op.shape.height = op.shape.width = s.size;
    if (augmented && r.training) {
      op.images = static_cast<const uint8_t*>(r.at(augmented));
      op.crops = nullptr;
    }
    r.run(op);
  };
  g.add({"input", "input", forward});
  return out;
}

}  // namespace

Tensor input_patches(Graph& g, const InputShape& s, int augment_layers) {
  const int grid = s.size / s.patch;
  return add_input(g, s, augment_layers, [&] {
    return g.tensor("patches", {s.B, grid * grid, 3 * s.patch * s.patch});
  });
}

// An image is a grid of patches of one pixel.
Tensor input_images(Graph& g, const InputShape& s, int augment_layers) {
  InputShape pixels = s;
  pixels.patch = 1;
  return add_input(g, pixels, augment_layers, [&] {
    return g.tensor("images", {s.B, s.size, s.size, 3});
  });
}

}  // namespace bv
