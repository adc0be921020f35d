// The table of public weights, and names in it.
#include "engine/weights/public_weights.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/options/model_config.h"
#include "engine/weights/weights_cache.h"
#include "models/family.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

TEST(PublicWeights, AreOfModelsThatThereAre) {
  std::set<std::string> names, files;
  for (const PublicWeights& w : public_weights()) {
    const ModelConfig model = load_model_config(*w.info.model);  // throws if there is none
    EXPECT_TRUE(names.insert(w.name).second) << w.name;
    for (const std::string& other : w.also) EXPECT_TRUE(names.insert(other).second) << other;
    EXPECT_TRUE(files.insert(w.file).second) << w.file;
    EXPECT_EQ(model.family->patches, w.info.patch_size.has_value()) << w.name;
    EXPECT_TRUE(w.path.find(w.name.substr(w.name.find('/') + 1)) != w.path.npos) << w.url();
    if (w.info.patch_size) {
      const std::string form = "_patch" + std::to_string(*w.info.patch_size) + "_" +
                               std::to_string(*w.info.image_size) + ".";
      EXPECT_TRUE(has(w.name, form));
    } else {
      EXPECT_TRUE(has(w.name, *w.info.model));
    }
    if (w.name.starts_with("torchvision/")) {
      EXPECT_EQ(w.name.substr(w.name.find('-') + 1), w.sha256);
    }
  }
  for (const char* name :
       {"timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", "timm/resnet50.a1_in1k",
        "torchvision/resnet50-0676ba61", "torchvision/resnext50_32x4d.IMAGENET1K_V2"})
    EXPECT_TRUE(names.contains(name)) << name;
}

std::string error_in(const std::string& from, const std::string& to) {
  const std::string text =
      R"({"kind": "timm", "host": "https://h", "path": "/{}/m", "extension": ".pth", "page": "https://p/{}", "weights": {"r.x": {"model": "resnet18", "image_size": 224, "mean": [0, 0, 0], "std": [1, 1, 1], "interpolation": "bicubic", "crop_pct": 0.9, "outputs": 10, "mib": 45, "sha256": "0a", "licence": "mit"}}})";
  return error_of(
      [&] { parse_public_weights(from.empty() ? text : replaced(text, from, to), "t.json"); });
}

TEST(PublicWeights, OfATableWithMistakes) {
  EXPECT_EQ(error_in("", ""), "no error");
  EXPECT_EQ(error_in("\"0a\"", "\"0A\""),
            "t.json: timm/r.x: 'sha256' must be at most 64 hexadecimal digits in lower case");
  EXPECT_EQ(error_in("bicubic", "nearest"),
            "t.json: timm/r.x: 'interpolation' must be bilinear or bicubic");
  EXPECT_EQ(error_in("\"mib\"", "\"mb\""), "t.json: timm/r.x: 'mib' is missing");
  EXPECT_EQ(error_in("\"outputs\"", "\"more\": 1, \"outputs\""),
            "t.json: timm/r.x: unknown key 'more'");
  EXPECT_EQ(error_in("\"kind\": \"timm\"", "\"kind\": 3"), "t.json: 'kind' must be text");
}

TEST(PublicWeights, FillInWhatAFileDoesNotSay) {
  const TemporaryFolder folder;
  setenv("BAREVISION_CACHE", folder.path().c_str(), 1);
  const std::string name = "timm/resnet50.a1_in1k", path = folder / (name + ".safetensors");
  TensorFile file{.metadata = {{"format", "pt"}, {"mean", "[0.25, 0.25, 0.25]"}}};
  file.tensors["w"] = {.shape = {1}, .data = {1}};
  std::filesystem::create_directories(folder / "timm");
  write_safetensors(path, file);
  EXPECT_EQ(path_of_weights(name), path);
  const WeightsInfo info = weights_info(read_weights_file(name), name);
  EXPECT_EQ(info.model, "resnet50");
  EXPECT_EQ(info.image_size, 224);
  EXPECT_FALSE(info.patch_size);
  EXPECT_EQ(info.mean->at(0), 0.25);  // the file's own
  EXPECT_EQ(info.std->at(0), 0.229);
  EXPECT_EQ(info.crop_mode, CropMode::center);
  EXPECT_EQ(info.crop_pct, 0.95);
  EXPECT_EQ(info.interpolation, Interpolation::bicubic);
  EXPECT_FALSE(weights_info(read_weights_file(path), path).model);
  unsetenv("BAREVISION_CACHE");
}

}  // namespace
}  // namespace bv::test
