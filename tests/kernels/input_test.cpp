// Pixels to normalised patches: the oracle and the cases. There is no gradient.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

using Pixels = std::vector<uint8_t>;

// The image is cropped, then mirrored.
double pixel(const Pixels& images, const std::vector<Crop>& crops, const InputShape& s, int b,
             int y, int x, int c) {
  const Crop crop = crops.empty() ? Crop{} : crops[b];
  const int from_y = (crop.upside_down ? s.size - 1 - y : y) + crop.top;
  const int from_x = (crop.flip ? s.size - 1 - x : x) + crop.left;
  const bool inside = from_y >= 0 && from_y < s.height && from_x >= 0 && from_x < s.width;
  return inside ? images[((size_t(b) * s.height + from_y) * s.width + from_x) * 3 + c] : 0;
}

double mixed(const Mix& mix, int y, int x, double own, double partner) {
  if (mix.bottom <= mix.top || mix.right <= mix.left)
    return std::floor(mix.lambda * own + (1 - mix.lambda) * partner + 0.5);
  return y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right ? partner : own;
}

Tensor input_patches(const Pixels& images, const std::vector<Crop>& crops,
                     const std::vector<Mix>& mixes, const InputShape& s) {
  const int patch = s.patch, grid = s.size / patch, length = 3 * patch * patch;
  Tensor out(size_t(s.B) * grid * grid * length);
  for (int b = 0; b < s.B; ++b)
    for (int y = 0; y < s.size; ++y)
      for (int x = 0; x < s.size; ++x)
        for (int c = 0; c < 3; ++c) {
          double level = pixel(images, crops, s, b, y, x, c);
          if (!mixes.empty())
            level = mixed(mixes[b], y, x, level, pixel(images, crops, s, b ^ 1, y, x, c));
          const int token = y / patch * grid + x / patch;
          const int element = (c * patch + y % patch) * patch + x % patch;
          out[(size_t(b) * grid * grid + token) * length + element] =
              (Tracked(level) / Tracked(255) - Tracked(s.mean[c])) / Tracked(s.std[c]);
        }
  return out;
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
// Mixes of all kinds; lambda's products with levels are exact and include ties.
std::vector<Mix> mixes_of(Problem& p, const InputShape& s) {
  std::vector<Mix> mixes;
  for (int b = 0; b < s.B; ++b) {
    const auto edge = [&] { return int16_t(p.random.below(s.size + 1)); };
    const float lambda = float(p.random.below(65)) / 64;
    const int16_t top = edge(), left = edge();
    const Mix kinds[] = {{lambda},
                         {lambda, top, left, int16_t(top + edge()), int16_t(left + edge())},
                         {lambda, 0, 0, int16_t(s.size), int16_t(s.size)},
                         {lambda, top, 0, top, int16_t(s.size)},  // empty
                         {1}};
    mixes.push_back(kinds[(b + p.random.below(2)) % 5]);
  }
  return mixes;
}

Problem input_patches(DType dtype, InputShape s, const std::vector<Crop>& crops, bool mixing) {
  Problem p(dtype);
  p.any_threads = true;
  std::vector<uint8_t> images(size_t(s.B) * s.height * s.width * 3);
  for (uint8_t& pixel : images) pixel = uint8_t(p.random.below(256));
  const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
  for (int c = 0; c < 3; ++c) s.mean[c] = mean[c], s.std[c] = std[c];
  const int grid = s.size / s.patch;
  const std::vector<Mix> mixes = mixing ? mixes_of(p, s) : std::vector<Mix>();
  p.output("out", {s.B, grid * grid, 3 * s.patch * s.patch},
           oracle::input_patches(images, crops, mixes, s));
  p.objects("images", images);
  if (mixing) p.objects("mixes", mixes);
  if (!crops.empty()) p.objects("crops", crops);
  p.runs(InputPatches{.shape = s, .dtype = dtype});
  return p;
}

KernelCases input_cases() {
  KernelCases cases;
  // shape: B, height, width, size, patch
  const auto add = [&](const InputShape& s, const std::vector<Crop>& crops, const char* what) {
    const std::string name =
        sizes({{"B", s.B}, {"height", s.height}, {"width", s.width}, {"size", s.size}}) +
        sizes({{"patch", s.patch}}) + "_" + what;
    cases.add("input_patches" + name, input_patches, s, crops, false);
    if (s.B % 2 == 0) cases.add("input_patches" + name + "_mixed", input_patches, s, crops, true);
  };
  add({1, 1, 1, 1, 1}, {{0, 0, 0}}, "whole");
  add({3, 9, 9, 9, 3}, {{0, 0, 1}, {0, 0, 0}, {0, 0, 1}}, "flip");
  add({4, 32, 32, 32, 4}, {{-4, 4, 0}, {4, -4, 1}, {-3, -1, 1}, {2, 0, 0}}, "padded");
  add({2, 40, 53, 35, 7}, {{5, 18, 1}, {0, 1, 0}}, "cropped");
  add({2, 5, 3, 10, 5}, {{-2, -3, 1}, {20, 20, 0}}, "outside");
  add({2, 224, 224, 224, 16}, {{0, 0, 0}, {0, 0, 1}}, "flip");
  // Pixel by pixel, for a convolution.
  add({1, 1, 2, 2, 1}, {{0, 0, 1}}, "flip");
  add({3, 9, 7, 7, 1}, {{2, 0, 1}, {0, 0, 0}, {-1, -1, 1}}, "flip");
  add({6, 32, 32, 32, 1}, {{-4, 4, 0}, {4, -4, 1}, {-3, -1, 1}, {2, 0, 0}, {0, 0, 1}, {1, 3, 1}},
      "padded");
  add({4, 12, 21, 16, 1}, {{-2, 3, 0}, {-2, 2, 1}, {0, 5, 1}, {-1, 1, 0}}, "cropped");
  add({3, 5, 3, 12, 1}, {{-2, -3, 1}, {-2, 20, 0}, {20, 0, 1}}, "outside");
  add({1, 3, 600, 525, 1}, {{-260, 40, 1}}, "wide");
  add({2, 64, 64, 56, 1}, {{8, 8, 1}, {3, 5, 0}}, "cropped");
  add({2, 16, 16, 16, 1}, {}, "no_crops");
  add({2, 16, 16, 16, 8}, {}, "no_crops");
  add({2, 20, 24, 16, 1}, {{1, 3, 1, 1}, {-2, 5, 0, 1}}, "upside_down");
  add({2, 20, 24, 16, 8}, {{1, 3, 1, 1}, {-2, 5, 0, 1}}, "upside_down");
  for (const int patch : {1, 3, 4, 8}) add({10, 24, 24, 24, patch}, {}, "no_crops");
  cases.begin_sweep();
  for (const int patch : {1, 2, 3, 5, 7, 8, 14, 16, 32})
    for (const int grid : {1, 2, 3})
      add({2, 50, 45, patch * grid, patch}, {{1, -2, 0}, {-3, 4, 1}}, "sweep");
  for (int size = 1; size <= 64; ++size)
    for (const int16_t flip : {0, 1})
      add({3, 40, 41, size, 1}, {{0, -1, flip}, {3, 2, flip}, {-5, int16_t(41 - size), flip}},
          flip ? "sweep_flip" : "sweep");
  return cases;
}

[[maybe_unused]] const bool added = add_cases(input_cases());

using Op = InputPatches;
const Mix some_mixes[3] = {};
[[maybe_unused]] const bool refused = refuses<Op>({
    {"patch", [](Op& o) { o.shape.patch = o.shape.size + 1; }},
    {"patch", [](Op& o) { o.shape.patch = o.shape.size = o.shape.height = o.shape.width = 513; },
     Refusal<Op>::cpu},
    {"crops", [](Op& o) { o.crops = nullptr, ++o.shape.width; }},
    {"size",
     [](Op& o) { o.shape.size = o.shape.height = o.shape.width = 16385, o.shape.patch = 1; },
     Refusal<Op>::gpu},
    {"B", [](Op& o) { o.shape.B = 65536; }, Refusal<Op>::gpu},
    {"mixes", [](Op& o) { o.mixes = some_mixes, o.shape.B = 3; }},
});

}  // namespace
}  // namespace bv::test
