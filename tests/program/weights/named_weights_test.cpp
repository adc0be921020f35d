// --weights timm/NAME and torchvision/NAME, from a cache and without one.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/other_program.h"
#include "engine/files/safetensors.h"
#include "engine/options/model_config.h"
#include "tests/engine/weights/torch_archive.h"
#include "tests/program/http_server.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

// A file like timm's: tensors without metadata about their use.
std::string bare_file(const std::string& folder, const TensorFile& weights) {
  write_safetensors(folder + "/bare", {{"format", "pt"}}, views_of(weights.tensors));
  const std::string file = contents(folder + "/bare");
  fs::remove(folder + "/bare");
  return file;
}

// Has all models, recipes and tables of weights; two models have fewer layers.
class NamedWeights : public ProgramTest {
 protected:
  NamedWeights() {
    fs::copy(models_folder(), in("models"), fs::copy_options::recursive);
    change("vit_tiny", "\"depth\": 12", "\"depth\": 1");
    change("resnet50", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
    make_class_folders(in("photos"), 2, 20);
  }
  void change(const std::string& model, const std::string& from, const std::string& to) const {
    const std::string path = in("models/" + model + ".json");
    write_text(path, replaced(contents(path), from, to));
  }
  Finished run(const std::string& words) const {
    return run_program(folder_.path(), words, {.environment = variables()});
  }
  Variables variables() const {
    return {{"BAREVISION_CACHE", in("cache")}, {"BAREVISION_MODELS", in("models")}};
  }
  void expect_error(const std::string& words, const std::string& error) const {
    const Finished end = refuse(words, variables());
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, error + "\n");
  }
  Finished succeed(const std::string& words) const {
    const Finished end = run(words);
    EXPECT_EQ(end.code, 0) << words << end.errors;
    return end;
  }
  TensorFile trained(const std::string& words) const {
    succeed(words + " --steps 1 --device cpu --data photos --out first");
    return read_safetensors(in("first/last/weights.safetensors"));
  }
  void record_sha256(const std::string& name, const std::string& sha256) const {
    const std::string table = in("models/weights/torchvision.json"),
                      old = name.substr(name.find('-') + 1);
    write_text(table, replaced(contents(table), "\"sha256\": \"" + old, "\"sha256\": \"" + sha256));
  }
  const std::string vit_ = "vit_tiny --image-size 32 --data photos --device cpu --steps 1 ";
};

TEST_F(NamedWeights, AreMissedWithTheCommandThatFetchesThem) {
  const std::string name = "timm/deit_tiny_patch16_224.fb_in1k",
                    missing = name + " is not in the cache: run ./launcher weights fetch " + name +
                              ", or put https://huggingface.co/" + name +
                              "/resolve/main/model.safetensors at " +
                              in("cache/" + name + ".safetensors");
  expect_error(vit_ + "--weights " + name, missing);
  expect_error("lint " + vit_ + "--weights " + name, missing);
  expect_error("eval " + name + " --data photos", missing);
  expect_error("predict " + name + " photos", missing);
  expect_error(vit_ + "--weights timm/deit_tiny",
               "no public weights timm/deit_tiny are known; similar: "
               "timm/deit_tiny_patch16_224.fb_in1k, "
               "timm/deit_tiny_distilled_patch16_224.fb_in1k; ./launcher weights list shows all");
}

TEST_F(NamedWeights, BringTheirModelAndPixels) {
  const TensorFile weights = trained("vit_tiny --image-size 32");
  const std::string name = "timm/deit_tiny_patch16_224.fb_in1k";
  write_text(in("cache/" + name + ".safetensors"), bare_file(folder_.path(), weights));
  const Finished end = succeed(vit_ + "--weights " + name + " --out second");
  EXPECT_TRUE(has(end.output, "\nweights: " + name + ", ")) << end.output;
  const std::string config = contents(in("second/config.json"));
  EXPECT_TRUE(has(config, "\"weights\": \"" + name + "\"")) << config;
  // vit_tiny's own are 0.5.
  EXPECT_TRUE(has(config, "\"mean\": [0.485,0.456,0.406]")) << config;
  EXPECT_TRUE(has(config, "\"std\": [0.229,0.224,0.225]"));
  succeed("--resume second --steps 2");
  succeed("--config second/config.json --out third");
  expect_error("resnet18 --data photos --weights " + name,
               name + ": weights of vit_tiny, not of resnet18");
  expect_error("vit_tiny --image-size 32 --patch-size 8 --data photos --weights " + name,
               name + ": weights for patches of 16 pixels, this run has 8; give --patch-size 16");
  const std::string model = "--image-size 32 --device cpu --classes 2 --json";
  const Finished predicted = succeed("predict " + name + " photos " + model),
                 plain = succeed("predict second/last/weights.safetensors photos " + model);
  EXPECT_TRUE(has(predicted.output, "\"logits\":"));
  write_text(in("names.txt"), "class0\nclass1\n");
  succeed("eval " + name + " --data photos --image-size 32 --device cpu --classes names.txt");
  // A file with this path takes precedence over the public weights.
  fs::create_directories(in("timm"));
  fs::copy(in("second/last/weights.safetensors"), in(name));
  EXPECT_EQ(succeed("predict " + name + " photos " + model).output, plain.output);
}

// The published set-up, starting with an empty cache.
TEST_F(NamedWeights, OfARecipeAreFetchedByTheCommandItNames) {
  const std::string name = "timm/resnet50.tv_in1k",
                    words =
                        "--recipe seedlings_resnet50 --data photos --device cpu --image-size 32 "
                        "--steps 1 --out run ";
  TensorFile weights = trained("resnet50 --image-size 32");
  const size_t features = size_t(weights.tensors.at("fc.weight").shape[1]);
  weights.tensors["fc.weight"] = {{1000, int64_t(features)}, std::vector<float>(1000 * features)};
  weights.tensors["fc.bias"] = {{1000}, std::vector<float>(1000)};
  expect_error(
      words, name + " is not in the cache: run ./launcher weights fetch " + name +
                 ", or put https://huggingface.co/" + name + "/resolve/main/model.safetensors at " +
                 in("cache/" + name + ".safetensors") + "; --weights none starts from random ones");
  EXPECT_TRUE(has(succeed("recipes seedlings_resnet50").output,
                  "\nits weights: ./launcher weights fetch " + name + "\n"));
  const HttpServer server(bare_file(folder_.path(), weights), {{.cut = 100000}, {}});
  const Finished fetched = succeed("weights fetch " + name + " --mirror " + server.place());
  EXPECT_TRUE(has(fetched.output, ", 87 tensors\n")) << fetched.output;
  const Finished end = succeed(words);
  EXPECT_TRUE(has(end.output, "\nweights: " + name + ", ")) << end.output;
  // A user's own recipe may name a file.
  const std::string recipe = in("models/recipes/seedlings_resnet50.json");
  write_text(recipe, replaced(contents(recipe), "\"" + name + "\"", "\"mine.pth\""));
  expect_error(words + "--out other",
               "the recipe's weights, mine.pth, aren't here; ./launcher recipes "
               "seedlings_resnet50 says where they are from; --weights none starts from random "
               "ones");
}

// torchvision's files, by name and by path, train as the same weights of .safetensors do.
TEST_F(NamedWeights, OfTorchvisionAreReadWithoutPython) {
  const TensorFile weights = trained("resnet50 --image-size 32");
  const std::string name = "torchvision/resnet50-0676ba61";
  write_text(in("a.safetensors"), bare_file(folder_.path(), weights));
  write_text(in("a.pth"), torch_file_of(weights.tensors));
  record_sha256(name, sha256_of(in("a.pth")).substr(0, 8));
  fs::create_directories(in("cache/torchvision"));
  fs::copy(in("a.pth"), in("cache/" + name + ".pth"));
  std::vector<std::string> ends;
  for (const std::string& given : {std::string("a.safetensors"), std::string("a.pth"), name,
                                   std::string("torchvision/resnet50.IMAGENET1K_V1")}) {
    fs::remove_all(in("run"));
    succeed("resnet50 --image-size 32 --data photos --device cpu --steps 1 --out run --weights " +
            given);
    ends.push_back(contents(in("run/last/weights.safetensors")));
    EXPECT_TRUE(ends.back() == ends.front()) << given;
  }
  write_text(in("bad.pth"), torch_file("\x80\2cos\nsystem\n" + pickled("true") + "\x85R.", {}));
  expect_error("resnet50 --data photos --weights bad.pth",
               "bad.pth: an object of os.system, not a state dict; nothing in it is run; if you "
               "trust it, save its state_dict alone");
}

// A file that was damaged in the cache, or is another one, isn't even read.
TEST_F(NamedWeights, AreCheckedAgainstTheirChecksum) {
  const std::string name = "torchvision/resnet50-0676ba61", path = in("cache/" + name + ".pth"),
                    words = "resnet50 --image-size 32 --data photos --device cpu --weights " + name;
  write_text(path, "another file");
  const std::string wrong = path + ": its SHA-256 is " + sha256_of(path) +
                            ", not 0676ba61...; delete it and run ./launcher weights fetch " + name;
  expect_error(words, wrong);
  expect_error("predict " + name + " photos --classes 2", wrong);
  record_sha256(name, sha256_of(path));
  expect_error(words,
               path + ": a text file, not weights (.safetensors, or what torch.save writes)");
}

// As other programs name the same weights
TEST_F(NamedWeights, OfOtherProgramsAreTold) {
  const auto hint = [](const std::string& name) {
    return "; did you mean " + name + "? ./launcher weights fetch " + name + " downloads it";
  };
  const std::string timm = "timm/resnet50.a1_in1k", vision = "torchvision/resnet50-0676ba61",
                    none = ": no such file", missing = ": no such run folder or weights file";
  for (const std::string& given :
       {"hf-hub:" + timm, "hf_hub:" + timm, std::string("resnet50.a1_in1k"),
        "https://huggingface.co/" + timm, "https://huggingface.co/" + timm + "/tree/main",
        "https://huggingface.co/" + timm + "/resolve/main/model.safetensors?download=true"})
    expect_error(vit_ + "--weights " + given, given + none + hint(timm));
  for (const std::string& given :
       {std::string("https://download.pytorch.org/models/resnet50-0676ba61.pth"),
        std::string("resnet50-0676ba61.pth"), std::string("resnet50.IMAGENET1K_V1")})
    expect_error("predict " + given + " photos", given + missing + hint(vision));
  expect_error(
      "predict https://host/w.pth photos",
      "https://host/w.pth" + missing + "; it is an address: download the file and give its path");
  expect_error("predict hf-hub:me/mine photos",
               "hf-hub:me/mine" + missing +
                   "; download its model.safetensors and give that file's path (./launcher weights "
                   "list has the names that can be given)");
  expect_error("predict resnet152 photos",
               "resnet152" + missing +
                   "; public weights of similar names: timm/resnet152.a1h_in1k, "
                   "timm/resnet152.a1_in1k, timm/resnet152.a2_in1k and 6 more (./launcher weights "
                   "list)");
  expect_error(vit_ + "--weights none.pth", "none.pth" + none);
}

// FILE:KEY, folders of huggingface, checkpoints with an average: in training and in predict.
TEST_F(NamedWeights, MayBeAPartOfAFile) {
  const TensorFile weights = trained("vit_tiny --image-size 32");
  TensorFile two;
  for (const auto& [name, tensor] : weights.tensors) {
    two.tensors["student." + name] = two.tensors["teacher." + name] = tensor;
    for (float& x : two.tensors["student." + name].data) x = -x;
  }
  write_text(in("two:of.them"), bare_file(folder_.path(), two));
  const std::string model =
      " photos --model vit_tiny --image-size 32 --device cpu --classes 2 --json";
  const std::string plain = succeed("predict first/last/weights.safetensors" + model).output;
  expect_error("predict two:of.them" + model,
               "two:of.them: has the model 2 times, under different prefixes; give "
               "two:of.them:student or two:of.them:teacher");
  EXPECT_EQ(succeed("predict two:of.them:teacher" + model).output, plain);
  EXPECT_NE(succeed("predict two:of.them:student" + model).output, plain);
  const Finished end = succeed(vit_ + "--weights two:of.them:teacher --out second");
  EXPECT_TRUE(has(end.output, "\nweights: two:of.them:teacher, ")) << end.output;
  write_text(in("hub/config.json"), "{\"architecture\": \"vit_tiny_patch16_224\"}");
  write_text(in("hub/model.safetensors"), bare_file(folder_.path(), weights));
  EXPECT_EQ(succeed("predict hub" + model).output, plain);
  succeed(vit_ + "--weights hub --out third");
}

}  // namespace
}  // namespace bv::test
