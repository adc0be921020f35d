// Position embeddings for a different grid of patches.
#pragma once
#include <span>
#include <vector>

namespace bv {

// Resizes `grid` [from, from, channels] to [to, to, channels]: bicubic (a = -0.5), antialiased
// when shrinking; PyTorch's interpolate(mode="bicubic", antialias=True, align_corners=False).
std::vector<float> resize_embedding(std::span<const float> grid, int from, int to, int channels);

}  // namespace bv
