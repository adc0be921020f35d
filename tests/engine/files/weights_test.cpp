#include "engine/files/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/messages.h"

namespace {

using namespace bv;
using namespace bv::test;

HostTensor filled(std::vector<int64_t> shape) {
  size_t n = 1;
  for (const int64_t s : shape) n *= size_t(s);
  HostTensor t{.shape = std::move(shape), .data = std::vector<float>(n)};
  for (size_t i = 0; i < n; ++i) t.data[i] = float(i % 7);
  return t;
}

const std::vector<ParameterShape> parameters = {{"pos_embed", {1, 1 + 9, 2}},
                                                {"norm.weight", {2}},
                                                {"head.weight", {3, 2}},
                                                {"head.bias", {3}}};
const std::vector<std::string> heads = {"head.weight", "head.bias"};

TensorFile fitting_file() {
  TensorFile file;
  for (const ParameterShape& p : parameters) file.tensors[p.name] = filled(p.shape);
  return file;
}

FitResult fit(TensorFile file) {
  return fit_weights(std::move(file), "w.safetensors", parameters, heads);
}

std::string refusal(const TensorFile& file) {
  return error_of([&] { fit(file); });
}

TEST(Weights, FittingFileIsTakenAsItIs) {
  const FitResult result = fit(fitting_file());
  EXPECT_EQ(result.tensors.size(), 4u);
  EXPECT_EQ(result.tensors.at("head.weight").data, filled({3, 2}).data);
  EXPECT_TRUE(result.fresh.empty());
  EXPECT_EQ(result.note, "weights: w.safetensors, 4 of 4 tensors");
}

TensorFile prefixed(const std::string& prefix) {
  TensorFile file;
  for (auto& [name, tensor] : fitting_file().tensors) file.tensors[prefix + name] = tensor;
  return file;
}

// Prefixes of DistributedDataParallel, torch.compile, both, and a user's own module.
TEST(Weights, WrappersPrefixesAreLeftOut) {
  const std::string all = "weights: w.safetensors, 4 of 4 tensors, names without ";
  EXPECT_EQ(fit(prefixed("module.")).note, all + "module.");
  EXPECT_EQ(fit(prefixed("_orig_mod.")).note, all + "_orig_mod.");
  EXPECT_EQ(fit(prefixed("model.")).note, all + "model.");  // Lightning's usual prefix
  EXPECT_EQ(fit(prefixed("module._orig_mod.")).note, all + "module._orig_mod.");
  EXPECT_EQ(fit(prefixed("_orig_mod.module.")).note, all + "_orig_mod.module.");
  EXPECT_EQ(fit(prefixed("net._orig_mod.")).note, all + "net._orig_mod.");
}

// A wrapper's own names lack the prefix, as may a part of the model.
TEST(Weights, WhatHasNoPrefixIsTheModelsOrIsNamed) {
  const std::string all = "weights: w.safetensors, 4 of 4 tensors, names without ";
  TensorFile file = prefixed("model.");
  file.tensors["criterion.weight"] = filled({2});
  EXPECT_EQ(fit(file).note, all + "model., criterion.weight is left out");
  file.tensors["n_averaged"] = filled({});
  EXPECT_EQ(fit(file).note, all + "model., criterion.weight, n_averaged are left out");
  file.tensors["norm.weight"] = filled({2});
  file.tensors["norm.weight"].data = {8, 9};  // beside model.norm.weight
  const FitResult result = fit(file);
  EXPECT_EQ(result.note, all + "model., criterion.weight, n_averaged, norm.weight are left out");
  EXPECT_EQ(result.tensors.at("norm.weight").data, filled({2}).data);

  TensorFile parts = prefixed("backbone.");
  auto node = parts.tensors.extract("backbone.head.bias");
  node.key() = "head.bias";
  parts.tensors.insert(std::move(node));
  EXPECT_EQ(fit(parts).note, all + "backbone.");

  // A name with the prefix is part of the network, and isn't left out.
  file = prefixed("model.");
  file.tensors["model.blocks.0.ls1.gamma"] = filled({2});
  EXPECT_TRUE(has(refusal(file), "; extra: blocks.0.ls1.gamma; no model here has LayerScale"));
  // Without a prefix, nothing tells a wrapper's names from the network's.
  file = fitting_file();
  file.tensors["criterion.weight"] = filled({2});
  EXPECT_TRUE(has(refusal(file), "; extra: criterion.weight"));
}

// Which of two networks is meant isn't guessed, unless only one has the model's shapes.
TEST(Weights, TwoPrefixesThatFitAreNamed) {
  TensorFile file = prefixed("student.");
  for (auto& [name, tensor] : prefixed("teacher.").tensors) file.tensors[name] = tensor;
  EXPECT_EQ(refusal(file),
            "w.safetensors: has the model 2 times, under different prefixes; give "
            "w.safetensors:student or w.safetensors:teacher");
  file.tensors["teacher.norm.weight"] = filled({3});
  EXPECT_TRUE(has(fit(file).note, "names without student., teacher.head.bias, "));
}

TEST(Weights, NamesWithoutAPrefixComeBeforeAnAverage) {
  TensorFile file = fitting_file();
  for (auto& [name, tensor] : prefixed("ema.").tensors) {
    file.tensors[name] = tensor;
    file.tensors[name].data.assign(tensor.data.size(), 7);
  }
  const FitResult result = fit(file);
  EXPECT_EQ(result.note,
            "weights: w.safetensors, 4 of 4 tensors, those without a prefix (w.safetensors:ema "
            "takes the other)");
  EXPECT_EQ(result.tensors.at("norm.weight").data, fitting_file().tensors.at("norm.weight").data);
}

TEST(Weights, OtherDictionariesThatFitAreNamed) {
  TensorFile file = fitting_file();
  file.taken = "state_dict";
  file.also = {"state_dict_ema"};
  file.found = {"state_dict (4 tensors)", "state_dict_ema (4 tensors)"};
  EXPECT_EQ(fit(file).note,
            "weights: w.safetensors, 4 of 4 tensors, from its state_dict "
            "(w.safetensors:state_dict_ema takes the other)");
  file.tensors.erase("norm.weight");
  EXPECT_EQ(refusal(file),
            "w.safetensors: these weights don't fit the model; missing: norm.weight; the file has "
            "state_dict (4 tensors), state_dict_ema (4 tensors), of which this is state_dict; "
            "w.safetensors:NAME takes another");
}

TEST(Weights, LayerScaleIsNamed) {
  TensorFile file = fitting_file();
  file.tensors["blocks.0.ls1.gamma"] = filled({2});
  EXPECT_TRUE(
      has(refusal(file), "extra: blocks.0.ls1.gamma; no model here has LayerScale (ls1, ls2)"));
}

TEST(Weights, OtherPatchesAreNamed) {
  const std::vector<ParameterShape> patches = {{"patch_embed.proj.weight", {2, 3, 4, 4}}};
  TensorFile file;
  file.tensors["patch_embed.proj.weight"] = filled({2, 3, 2, 2});
  EXPECT_EQ(error_of([&] { fit_weights(file, "w", patches, {}); }),
            "w: these weights don't fit the model; wrong shape: patch_embed.proj.weight "
            "[2x3x2x2] for [2x3x4x4]; give --patch-size 2");
}

// PyTorch's batch norms store num_batches_tracked.
TEST(Weights, IntegersAreRefused) {
  TensorFile file = fitting_file();
  file.tensors.at("norm.weight").integers = true;
  EXPECT_EQ(refusal(file),
            "w.safetensors: these weights don't fit the model; integers in place of floats: "
            "norm.weight");
  file = fitting_file();
  file.tensors["norm.num_batches_tracked"] = {.shape = {}, .data = {3}, .integers = true};
  EXPECT_EQ(refusal(file), "no error");
}

TEST(Weights, CountsOfBatchesAreLeftOut) {
  TensorFile file = fitting_file();
  file.tensors["bn1.num_batches_tracked"] = filled({});
  EXPECT_EQ(fit(file).tensors.size(), 4u);
}

TEST(Weights, OtherNumberOfClassesSwapsTheHead) {
  TensorFile file = fitting_file();
  file.tensors["head.weight"] = filled({1000, 2});
  file.tensors["head.bias"] = filled({1000});
  const FitResult result = fit(file);
  EXPECT_EQ(result.fresh, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(result.tensors.size(), 2u);
  EXPECT_EQ(result.note,
            "weights: w.safetensors, 2 of 4 tensors, new head (1000 classes there, 3 here)");
}

TEST(Weights, FileWithoutHeadGetsOne) {
  TensorFile file = fitting_file();
  file.tensors.erase("head.weight");
  EXPECT_EQ(refusal(file),
            "w.safetensors: these weights don't fit the model; missing: head.weight");
  file.tensors.erase("head.bias");
  const FitResult result = fit(file);
  EXPECT_EQ(result.fresh.size(), 2u);
  EXPECT_EQ(result.note, "weights: w.safetensors, 2 of 4 tensors, new head (none there, 3 here)");
}

TEST(Weights, HeadsThatDisagreeAreNotSwapped) {
  TensorFile file = fitting_file();
  file.tensors["head.weight"] = filled({5, 2});
  EXPECT_EQ(refusal(file),
            "w.safetensors: these weights don't fit the model; wrong shape: head.weight [5x2] "
            "for [3x2]");
  file.tensors["head.weight"] = filled({5, 4});
  file.tensors["head.bias"] = filled({5});
  EXPECT_EQ(refusal(file),
            "w.safetensors: these weights don't fit the model; wrong shape: head.weight [5x4] "
            "for [3x2], head.bias [5] for [3]");
}

TEST(Weights, AllMisfitsStandInOneShortLine) {
  TensorFile file = fitting_file();
  file.tensors["norm.weight"].data[1] = std::numeric_limits<float>::quiet_NaN();
  file.tensors["head.bias"].data[0] = HUGE_VALF;
  file.tensors.erase("pos_embed");
  for (int i = 0; i < 9; ++i) file.tensors["spare" + std::to_string(i)] = filled({1});
  file.tensors["odd\nname"] = filled({1});
  EXPECT_EQ(
      refusal(file),
      "w.safetensors: these weights don't fit the model; missing: pos_embed; extra: odd?name, "
      "spare0, spare1, spare2, spare3 and 5 more; not finite: norm.weight, head.bias");
}

TEST(Weights, PositionEmbeddingThatIsNoSquareIsRefused) {
  TensorFile file = fitting_file();
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 1 + 6, 2}, {1, 4, 2}, {1, 1 + 16, 3}, {2, 1 + 16, 2}, {17, 2}}) {
    file.tensors["pos_embed"] = filled(shape);
    EXPECT_TRUE(has(refusal(file), "wrong shape: pos_embed"));
  }
}

struct ResizeCase {
  int from, to;
  double squares;
  std::vector<double> rows;  // index, a, b; ...
};

// Printed by tests/golden/position_embedding.py with PyTorch 2.15 and timm 1.0.31.
const std::vector<ResizeCase> resize_cases = {
    {14, 8, 5.502226522, {0,  -0.12502030, -0.09483576, 1,  0.09977330, 0.28008419,
                          7,  -0.34850013, -0.10682922, 32, 0.05898252, 0.32122526,
                          42, -0.03639235, 0.17300798,  56, 0.16040121, 0.23574005,
                          63, -0.09218442, 0.22374658}},
    {8, 14, 76.1095396, {0,   0.29526311,  -0.89096648, 1,   -0.13723849, -0.35121489,
                         13,  0.41380271,  -0.77242661, 98,  -0.89117533, 0.19191428,
                         130, 0.69079846,  -0.13191198, 182, 1.08492661,  0.06993699,
                         195, -1.12642741, 0.18847659}},
    {7, 16, 122.436193, {0,   0.22766213,  -0.80652022, 1,   0.04737506, -0.56668758,
                         15,  -0.99551511, 0.35116717,  128, 0.53834647, -0.49583593,
                         170, -0.79559320, 0.31121829,  240, 0.80801517, -0.01760256,
                         255, -0.41516212, 0.93152022}},
    {5,
     3,
     1.104054679,
     {0, -0.30681214, -0.33020702, 1, -0.13201697, 0.00713105, 2, 0.20761076, 0.22019231, 4,
      0.03125000, -0.13494454, 6, -0.14511091, 0.19078395, 8, 0.36931214, -0.49999976}},
    {3, 1, 0.008213667644, {0, -0.06563091, -0.06250001}},
    {1,
     2,
     1.98828125,
     {0, 0.15625000, -0.68750000, 1, 0.15625000, -0.68750000, 2, 0.15625000, -0.68750000, 3,
      0.15625000, -0.68750000}},
    {24, 14, 12.82057762, {0,   -0.31445378, -0.32798395, 1,   -0.14493860, 0.01104830,
                           13,  0.14624465,  0.17066722,  98,  0.00820182,  -0.14782660,
                           130, -0.13656169, -0.03180083, 182, 0.18160866,  0.22507527,
                           195, -0.51448715, -0.30003905}},
};

TEST(Weights, PositionEmbeddingResizesAsTimmDoes) {
  for (const ResizeCase& c : resize_cases) {
    HostTensor old{.shape = {1, 1 + int64_t(c.from) * c.from, 2}};
    for (int i = 0; i < old.shape[1]; ++i)
      for (int k = 0; k < 2; ++k) old.data.push_back(float((i * 37 + k * 101) % 64 - 32) / 32);
    TensorFile file;
    file.tensors["pos_embed"] = old;
    const std::vector<int64_t> wanted = {1, 1 + int64_t(c.to) * c.to, 2};
    const FitResult result = fit_weights(file, "w", {{"pos_embed", wanted}}, {});
    const HostTensor& out = result.tensors.at("pos_embed");
    EXPECT_EQ(out.shape, wanted);
    ASSERT_EQ(out.data.size(), size_t(wanted[1]) * 2);
    EXPECT_EQ(out.data[0], old.data[0]);  // the class token's row
    EXPECT_EQ(out.data[1], old.data[1]);
    double squares = 0;
    for (size_t i = 2; i < out.data.size(); ++i) squares += double(out.data[i]) * out.data[i];
    EXPECT_NEAR(squares, c.squares, 1e-5 * c.squares);
    for (size_t i = 0; i < c.rows.size(); i += 3)
      for (size_t k = 0; k < 2; ++k)
        EXPECT_NEAR(out.data[2 * size_t(c.rows[i]) + 2 + k], c.rows[i + 1 + k], 1e-6)
            << c.from << " to " << c.to;
    const auto grid = [](int g) { return std::to_string(g) + "x" + std::to_string(g); };
    EXPECT_EQ(result.note, "weights: w, 1 of 1 tensors, position embedding resized from " +
                               grid(c.from) + " to " + grid(c.to) + " patches");
  }
}

// The rows of both tokens are kept.
TEST(Weights, DistilledPositionEmbeddingResizesAfterTwoTokens) {
  TensorFile plain, distilled;
  plain.tensors["pos_embed"] = filled({1, 1 + 9, 2});
  HostTensor& longer = distilled.tensors["pos_embed"] = plain.tensors["pos_embed"];
  longer.shape[1] += 1;
  longer.data.insert(longer.data.begin(), {8, 9});
  distilled.tensors["dist_token"] = filled({1, 1, 2});
  const FitResult want = fit_weights(plain, "w", {{"pos_embed", {1, 1 + 4, 2}}}, {});
  const FitResult got =
      fit_weights(distilled, "w", {{"dist_token", {1, 1, 2}}, {"pos_embed", {1, 2 + 4, 2}}}, {});
  std::vector<float> both{8, 9};
  for (const float x : want.tensors.at("pos_embed").data) both.push_back(x);
  EXPECT_EQ(got.tensors.at("pos_embed").data, both);
}

TEST(Weights, BothHeadsAreSwapped) {
  TensorFile file;
  std::vector<ParameterShape> wanted;
  std::vector<std::string> both;
  for (const std::string head : {"head", "head_dist"}) {
    file.tensors[head + ".weight"] = filled({1000, 2});
    file.tensors[head + ".bias"] = filled({1000});
    wanted.push_back({head + ".weight", {3, 2}}), wanted.push_back({head + ".bias", {3}});
    both.push_back(head + ".weight"), both.push_back(head + ".bias");
  }
  EXPECT_EQ(fit_weights(file, "w", wanted, both).fresh, both);
  file.tensors["head_dist.weight"] = filled({5, 2});
  EXPECT_TRUE(has(error_of([&] { fit_weights(file, "w", wanted, both); }),
                  "head_dist.weight [5x2] for [3x2]"));
}

TEST(Weights, RepresentationSizeIsThatOfTheLayerBeforeTheHead) {
  TensorFile file = fitting_file();
  EXPECT_EQ(representation_size(file), 0);
  file.tensors["module.pre_logits.fc.weight"] = filled({7, 2});
  EXPECT_EQ(representation_size(file), 7);
}

TEST(Weights, MetadataComesBackAsItWas) {
  const WeightsInfo info{.model = "vit_tiny",
                         .image_size = 64,
                         .patch_size = 8,
                         .classes = {"a \"b\"", "ü"},
                         .mean = {{0.485, 0.456, 0.406}},
                         .std = {{0.1, 0.2, 0.3}},
                         .crop_mode = CropMode::squash,
                         .interpolation = Interpolation::bicubic,
                         .crop_pct = 0.875};
  TensorFile file;
  file.metadata = weights_metadata(info);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.metadata.at("mean"), "[0.485,0.456,0.406]");
  EXPECT_EQ(file.metadata.at("image_size"), "64");
  const WeightsInfo back = weights_info(file, "w");
  EXPECT_EQ(back.model, info.model);
  EXPECT_EQ(back.image_size, info.image_size);
  EXPECT_EQ(back.patch_size, info.patch_size);
  EXPECT_EQ(back.classes, info.classes);
  EXPECT_EQ(back.mean, info.mean);
  EXPECT_EQ(back.std, info.std);
  EXPECT_EQ(back.crop_mode, info.crop_mode);
  EXPECT_EQ(back.interpolation, info.interpolation);
  EXPECT_EQ(back.crop_pct, info.crop_pct);
}

TEST(Weights, ForeignFileSaysNothingOfItself) {
  TensorFile file;
  file.metadata = {{"format", "pt"}, {"made_by", "somebody"}};
  const WeightsInfo info = weights_info(file, "w");
  EXPECT_FALSE(info.model || info.image_size || info.patch_size || info.mean || info.std);
  EXPECT_TRUE(info.classes.empty());
}

TEST(Weights, MalformedMetadataIsRefused) {
  const std::map<std::string, std::vector<std::string>> bad = {
      {"image_size", {"", "64x", "-1", "0"}},
      {"patch_size", {"99999999999"}},
      {"classes", {"cat,dog", "[1,2]", "{\"a\":1}", "[[\"a\"]]"}},
      {"mean", {"[1,2]", "[1,2,\"3\"]", "[1,2,1e999]"}},
      {"crop_mode", {"", "centre"}},
      {"interpolation", {"nearest"}},
      {"crop_pct", {"0", "1.5", "all"}},
      {"std", {"[0.1,0.2,0]", "null", std::string(100000, '[')}}};
  for (const auto& [key, values] : bad)
    for (const std::string& value : values) {
      const TensorFile file{.metadata = {{key, value}}};
      const std::string error = error_of([&] { weights_info(file, "w.safetensors"); });
      EXPECT_TRUE(error.starts_with("w.safetensors: metadata " + key + " is not ")) << error;
      EXPECT_LT(error.size(), 250u);
    }
}

}  // namespace
