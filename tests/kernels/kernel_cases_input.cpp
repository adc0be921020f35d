// Pixels to patches, tokens, dropout.
#include <set>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

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

void add_input(std::vector<KernelCase>& cases, InputPatches s, const std::vector<Crop>& crops,
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

// ---- tokens -------------------------------------------------------------------------------------
struct Tokens {
  int B, P, C;
};

Problem embed_forward(DType dtype, Tokens s, bool exact) {
  const auto [B, P, C] = s;
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const Values patches = p.data(size_t(B) * P * C), token = p.data_fp32(C),
               position = p.data_fp32(size_t(1 + P) * C);
  p.output("out", {B, 1 + P, C}, oracle::embed_forward(patches, token, position, B, P, C));
  p.input("patches", {B, P, C}, patches);
  p.input_fp32("class_token", {C}, token), p.input_fp32("position", {1 + P, C}, position);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           EmbedForward{.out = a.at("out"),
                        .patches = a.at("patches"),
                        .class_token = a.at<float>("class_token"),
                        .position = a.at<float>("position"),
                        .shape = {s.B, s.P, s.C},
                        .dtype = dtype});
  };
  return p;
}

Problem embed_backward(DType dtype, Tokens s, bool accumulate, bool exact) {
  const auto [B, P, C] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(B) * (1 + P) * C);
  oracle::EmbedGradient g = oracle::embed_backward(dout, B, P, C);
  p.output("dpatches", {B, P, C}, g.dpatches);
  p.gradient("dclass_token", {C}, g.dclass_token, accumulate);
  p.gradient("dposition", {1 + P, C}, g.dposition, accumulate);
  p.input("dout", {B, 1 + P, C}, dout);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           EmbedBackward{.dpatches = a.at("dpatches"),
                         .dclass_token = a.at<float>("dclass_token"),
                         .dposition = a.at<float>("dposition"),
                         .dout = a.at("dout"),
                         .shape = {s.B, s.P, s.C},
                         .dtype = dtype,
                         .accumulate = accumulate});
  };
  return p;
}

Problem class_token(DType dtype, int B, int N, int C, bool backward) {
  Problem p(dtype);
  p.exact = p.any_threads = true;
  if (backward) {
    const Values dout = p.data(size_t(B) * C);
    p.output("dinp", {B, N, C}, oracle::class_token_backward(dout, B, N, C));
    p.input("dout", {B, C}, dout);
    p.run = [=](Kernels& k, DeviceArguments& a) {
      launch(k, a,
             ClassTokenBackward{
                 .dinp = a.at("dinp"), .dout = a.at("dout"), .shape = {B, N, C}, .dtype = dtype});
    };
    return p;
  }
  const Values inp = p.data(size_t(B) * N * C);
  p.output("out", {B, C}, oracle::class_token_forward(inp, B, N, C));
  p.input("inp", {B, N, C}, inp);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           ClassTokenForward{
               .out = a.at("out"), .inp = a.at("inp"), .shape = {B, N, C}, .dtype = dtype});
  };
  return p;
}

// ---- dropout ------------------------------------------------------------------------------------
Problem dropout(DType dtype, int B, int elements, int group, float drop, bool in_place) {
  Problem p(dtype);
  p.any_threads = true;
  p.exact = drop == 0 || drop == 0.5f || drop == 1;  // the factor is 1, 2 or unused
  const StepParams params{.seed = 0xFEDCBA9876543210u, .epoch = 9, .position = 0xFFFFFFFEu};
  const uint32_t layer = 11;
  const Values inp = p.data(size_t(B) * elements);
  p.output("out", {B, elements}, oracle::dropout(inp, params, B, elements, group, layer, drop),
           in_place ? inp : Values{});
  if (!in_place) p.input("inp", {B, elements}, inp);
  p.objects<StepParams>("params", {params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           Dropout{.out = a.at("out"),
                   .inp = a.at(in_place ? "out" : "inp"),
                   .params = a.at<StepParams>("params"),
                   .shape = {B, elements, group},
                   .layer = layer,
                   .drop = drop,
                   .dtype = dtype});
  };
  return p;
}

void add_dropout(std::vector<KernelCase>& cases, int B, int elements, int group) {
  for (const float drop : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f})
    for (const bool in_place : {false, true})
      cases.push_back({"dropout" + sizes({{"B", B}, {"elements", elements}, {"group", group}}) +
                           sizes({{"percent", int(100 * drop + 0.5f)}}) +
                           flag(in_place, "in_place"),
                       [=](DType t) { return dropout(t, B, elements, group, drop, in_place); }});
}

}  // namespace

std::vector<KernelCase> input_cases() {
  std::vector<KernelCase> cases;
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

  const auto add_embed = [&](Tokens s) {
    for (const bool exact : {false, true}) {
      const std::string name = sizes({{"B", s.B}, {"P", s.P}, {"C", s.C}}) + flag(exact, "exact");
      cases.push_back(
          {"embed_forward" + name, [=](DType t) { return embed_forward(t, s, exact); }});
      for (const bool accumulate : {false, true})
        cases.push_back({"embed_backward" + name + flag(accumulate, "accumulate"),
                         [=](DType t) { return embed_backward(t, s, accumulate, exact); }});
    }
  };
  for (const Tokens s :
       {Tokens{1, 1, 1}, {2, 3, 5}, {5, 4, 33}, {65, 3, 70}, {3, 196, 192}, {1, 17, 1024}})
    add_embed(s);
  for (const auto& [B, N, C] : {Tokens{1, 1, 1}, {2, 5, 7}, {5, 17, 33}, {2, 197, 192}})
    for (const bool backward : {false, true})
      cases.push_back(
          {std::string("class_token_") + (backward ? "backward" : "forward") +
               sizes({{"B", B}, {"N", N}, {"C", C}}),
           [=, b = B, n = N, c = C](DType t) { return class_token(t, b, n, c, backward); }});

  add_dropout(cases, 1, 1, 1);
  add_dropout(cases, 3, 37, 1);
  add_dropout(cases, 3, 37, 5);
  add_dropout(cases, 40, 31, 31);
  add_dropout(cases, 2, 17 * 192, 1);
  add_dropout(cases, 9, 17 * 192, 17 * 192);

  const size_t usual = cases.size();
  for (const int n : sweep_of_sizes()) {
    add_embed({4, 7, n});
    for (const int group : std::set{1, 2, 3, 8, n})
      if (group <= n) add_dropout(cases, 4, n, group);
  }
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
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test
