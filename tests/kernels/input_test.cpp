#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

Tensor input_patches(const std::vector<uint8_t>& images, const std::vector<Crop>& crops,
                     const InputPatches& s) {
  const int grid = s.shape.size / s.shape.patch, length = 3 * s.shape.patch * s.shape.patch;
  Tensor out(size_t(s.shape.B) * grid * grid * length);
  for (int b = 0; b < s.shape.B; ++b)
    for (int y = 0; y < s.shape.size; ++y)
      for (int x = 0; x < s.shape.size; ++x)
        for (int c = 0; c < 3; ++c) {
          const Crop& crop = crops[b];
          const int from_y = y + crop.top;
          // The picture is cropped, then mirrored.
          const int from_x = (crop.flip ? s.shape.size - 1 - x : x) + crop.left;
          const bool inside =
              from_y >= 0 && from_y < s.shape.height && from_x >= 0 && from_x < s.shape.width;
          const double pixel =
              inside
                  ? images[((size_t(b) * s.shape.height + from_y) * s.shape.width + from_x) * 3 + c]
                  : 0;
          const int token = y / s.shape.patch * grid + x / s.shape.patch;
          const int element =
              (c * s.shape.patch + y % s.shape.patch) * s.shape.patch + x % s.shape.patch;
          out[(size_t(b) * grid * grid + token) * length + element] =
              (Tracked(pixel) / Tracked(255) - Tracked(s.shape.mean[c])) / Tracked(s.shape.std[c]);
        }
  return out;
}

}  // namespace oracle

// ---- input --------------------------------------------------------------------------------------
Problem input_patches(InputPatches s, std::vector<Crop> crops) {
  Problem p(s.dtype);
  p.any_threads = true;
  std::vector<uint8_t> images(size_t(s.shape.B) * s.shape.height * s.shape.width * 3);
  for (uint8_t& pixel : images) pixel = uint8_t(p.random.below(256));
  const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
  for (int c = 0; c < 3; ++c) s.shape.mean[c] = mean[c], s.shape.std[c] = std[c];
  const int grid = s.shape.size / s.shape.patch;
  p.output("out", {s.shape.B, grid * grid, 3 * s.shape.patch * s.shape.patch},
           oracle::input_patches(images, crops, s));
  p.objects("images", images), p.objects("crops", crops);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    InputPatches op = s;
    op.out = a.at("out"), op.images = a.at<uint8_t>("images"), op.crops = a.at<Crop>("crops");
    launch(k, a, op);
  };
  return p;
}

void add_input(KernelCases& cases, InputPatches s, const std::vector<Crop>& crops,
               const char* what) {
  const std::string name = sizes({{"B", s.shape.B},
                                  {"height", s.shape.height},
                                  {"width", s.shape.width},
                                  {"size", s.shape.size}}) +
                           sizes({{"patch", s.shape.patch}}) + "_" + what;
  cases.push_back({"input_patches" + name, [=](DType t) {
                     InputPatches typed = s;
                     typed.dtype = t;
                     return input_patches(typed, crops);
                   }});
}

KernelCases input_cases() {
  KernelCases cases;
  const auto whole = [](int B) { return std::vector<Crop>(size_t(B), Crop{0, 0, 0}); };
  add_input(cases, {.shape = {.B = 1, .height = 1, .width = 1, .size = 1, .patch = 1}}, whole(1),
            "whole");
  add_input(cases, {.shape = {.B = 3, .height = 9, .width = 9, .size = 9, .patch = 3}},
            {{0, 0, 1}, {0, 0, 0}, {0, 0, 1}}, "flip");
  add_input(cases, {.shape = {.B = 4, .height = 32, .width = 32, .size = 32, .patch = 4}},
            {{-4, 4, 0}, {4, -4, 1}, {-3, -1, 1}, {2, 0, 0}}, "padded");
  add_input(cases, {.shape = {.B = 2, .height = 40, .width = 53, .size = 35, .patch = 7}},
            {{5, 18, 1}, {0, 1, 0}}, "cropped");
  add_input(cases, {.shape = {.B = 2, .height = 5, .width = 3, .size = 10, .patch = 5}},
            {{-2, -3, 1}, {20, 20, 0}}, "outside");
  add_input(cases, {.shape = {.B = 2, .height = 224, .width = 224, .size = 224, .patch = 16}},
            {{0, 0, 0}, {0, 0, 1}}, "flip");
  // Pixels one by one, as a convolution reads them.
  add_input(cases, {.shape = {.B = 1, .height = 1, .width = 2, .size = 2, .patch = 1}}, {{0, 0, 1}},
            "flip");
  add_input(cases, {.shape = {.B = 3, .height = 9, .width = 7, .size = 7, .patch = 1}},
            {{2, 0, 1}, {0, 0, 0}, {-1, -1, 1}}, "flip");
  add_input(cases, {.shape = {.B = 6, .height = 32, .width = 32, .size = 32, .patch = 1}},
            {{-4, 4, 0}, {4, -4, 1}, {-3, -1, 1}, {2, 0, 0}, {0, 0, 1}, {1, 3, 1}}, "padded");
  add_input(cases, {.shape = {.B = 4, .height = 12, .width = 21, .size = 16, .patch = 1}},
            {{-2, 3, 0}, {-2, 2, 1}, {0, 5, 1}, {-1, 1, 0}}, "cropped");
  add_input(cases, {.shape = {.B = 3, .height = 5, .width = 3, .size = 12, .patch = 1}},
            {{-2, -3, 1}, {-2, 20, 0}, {20, 0, 1}}, "outside");
  add_input(cases, {.shape = {.B = 1, .height = 3, .width = 600, .size = 525, .patch = 1}},
            {{-260, 40, 1}}, "wide");
  add_input(cases, {.shape = {.B = 2, .height = 64, .width = 64, .size = 56, .patch = 1}},
            {{8, 8, 1}, {3, 5, 0}}, "cropped");
  cases.begin_sweep();
  for (const int patch : {1, 2, 3, 5, 7, 8, 14, 16, 32})
    for (const int grid : {1, 2, 3})
      add_input(
          cases,
          {.shape = {.B = 2, .height = 50, .width = 45, .size = patch * grid, .patch = patch}},
          {{1, -2, 0}, {-3, 4, 1}}, "sweep");
  for (int size = 1; size <= 64; ++size)
    for (const int flip : {0, 1})
      add_input(cases, {.shape = {.B = 3, .height = 40, .width = 41, .size = size, .patch = 1}},
                {{0, -1, flip}, {3, 2, flip}, {-5, int16_t(41 - size), flip}},
                flip ? "sweep_flip" : "sweep");
  return cases;
}

[[maybe_unused]] const bool added = add_cases(input_cases());

}  // namespace
}  // namespace bv::test
