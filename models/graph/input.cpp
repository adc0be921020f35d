#include "models/graph/nodes.h"

namespace bv {
namespace {

Tensor add_input(Graph& g, Tensor out, const InputShape& shape) {
  const auto forward = [=](const Context& r) {
    r.run(InputPatches{.out = r.at(out), .images = r.images, .crops = r.crops, .shape = shape});
  };
  g.add({"input", "input", forward});
  return out;
}

}  // namespace

Tensor input_patches(Graph& g, const InputShape& s) {
  const int grid = s.size / s.patch;
  return add_input(g, g.tensor("patches", {s.B, grid * grid, 3 * s.patch * s.patch}), s);
}

// Patches of one pixel.
Tensor input_images(Graph& g, const InputShape& s) {
  InputShape pixels = s;
  pixels.patch = 1;
  return add_input(g, g.tensor("images", {s.B, s.size, s.size, 3}), pixels);
}

}  // namespace bv
