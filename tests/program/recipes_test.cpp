// --recipe, recipes, lint and --strict on the command line.
#include <cstdlib>
#include <filesystem>

#include "base/machine.h"
#include "base/text.h"
#include "engine/options/model_config.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using Strings = std::vector<std::string>;

class Recipes : public ProgramTest {
 protected:
  void SetUp() override { make_class_folders(in("photos"), 2, 20); }
  Finished on_columns(const std::string& columns, const std::string& words) const {
    return run_program(folder_.path(), words, {.environment = {{"COLUMNS", columns}}});
  }
  const std::string small_ = "--device cpu --image-size 32 --patch-size 16 --data photos ";
};

TEST_F(Recipes, AreListedAndExplained) {
  const Finished all = on_columns("100", "recipes");
  EXPECT_EQ(all.code, 0) << all.errors;
  EXPECT_TRUE(has(all.output, "\n  flowers_vit_tiny                 ViT-Tiny/16 on "))
      << all.output;
  EXPECT_TRUE(has(all.output, "seedlings_resnet50_as_published"));
  for (const char* words : {"recipes", "recipes flowers_vit_tiny"})
    for (const std::string& row : split(on_columns("60", words).output, '\n'))
      EXPECT_LE(row.size(), 60u) << row;
  const Finished one = on_columns("100", "recipes flowers_vit_tiny");
  EXPECT_EQ(one.code, 0) << one.errors;
  EXPECT_TRUE(has(one.output, "  --clip-grad 1\n      published: clip_grad_norm = 1.0\n"));
  EXPECT_TRUE(has(one.output, "  --accumulate 1\n      departure: gradient_accumulation = 16 "));
  EXPECT_TRUE(has(one.output, " --nesterov=false ")) << one.output;
  const Finished none = refuse("recipes flowers");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.errors,
                  "unknown recipe 'flowers' (did you mean flowers_vit_tiny?); "
                  "available: cifar10_resnet34, "));
}

TEST_F(Recipes, TrainByNameAndSayWhatIsWrong) {
  const Finished end = go("--recipe flowers_vit_tiny " + small_ + "--epochs 2 --out run");
  EXPECT_TRUE(has(end.output,
                  "\nrecipe: flowers_vit_tiny: sgd, lr 0.1, cosine, weight decay 0.0005; "
                  "batch 32, 2 epochs, augment basic, auto-augment ra-dali 2 x 10, mixup "
                  "0.2, clip 1\n"))
      << end.output;
  EXPECT_TRUE(has(end.output, "batch 32, not the recipe's 128: there are 32 images to train on"));
  const std::string line =
      "warning: only 2 updates (1 per epoch): too few to train well; use --batch 4\n";
  EXPECT_TRUE(has(end.output, line)) << end.output;
  // Printed once.
  EXPECT_FALSE(has(go("--resume run --epochs 3").output, line));
}

// The config file of a fine-tuning run has the weights' mean, which nobody chose.
TEST_F(Recipes, LintAcceptsWhatARunWasTrainedWith) {
  const std::string own = "vit_tiny " + small_ + "--steps 1 --device cpu --out ",
                    line = "pixels are normalised by the mean 0.1,0.1,0.1 and deviation";
  EXPECT_TRUE(has(go(own + "run --mean .1,.1,.1").output, line));
  EXPECT_FALSE(has(go(own + "tuned --weights run/last/weights.safetensors").output, line));
  EXPECT_FALSE(has(go("lint --config tuned/config.json").output, line));
}

TEST_F(Recipes, StrictTrainsNothing) {
  for (const std::string n : {"", "-n 2 "}) {
    const Finished end =
        refuse(n + "--recipe flowers_vit_tiny " + small_ + "--epochs 2 --strict --out strict");
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(has(end.errors, "warning: only 2 updates (1 per epoch): ")) << end.errors;
    EXPECT_TRUE(has(end.errors, "--strict: nothing is trained, because of the warnings above\n"));
    EXPECT_FALSE(std::filesystem::exists(in("strict")));
  }
}

TEST_F(Recipes, LintSaysItAlone) {
  const std::string set_up = "lint --recipe flowers_vit_tiny_as_published " + small_;
  const Finished end = run(set_up + "--batch 2");
  EXPECT_EQ(end.code, 0) << end.errors;
  EXPECT_EQ(end.output,
            "warning: only 200 updates (1 per epoch): too few to train well; use --accumulate 1\n"
            "warning: an image of 32x32 pixels is only 4 patches of 16: attention has too few to "
            "compare; use --patch-size 8 or --image-size 64\n"
            "warning: only 8 images for validation, of 2 classes: each moves top-1 by 12.5%; use a "
            "larger --val-fraction\n"
            "warning: computes in fp32, not in fp16: the cpu device lacks it; use --precision fp32 "
            "or another --device\n");
  EXPECT_EQ(refuse(set_up + "--batch 2 --strict").code, 2);
  const Finished fine = run("lint vit_tiny --strict");
  EXPECT_EQ(fine.code, 0) << fine.errors;
  EXPECT_EQ(fine.output, "no problems found\n");
  EXPECT_FALSE(std::filesystem::exists(in("runs")));
}

// config.json has every option, most at defaults. The runs print no warning, so lint must not.
TEST_F(Recipes, LintPassesARunsOwnConfig) {
  const bool all = std::getenv("BAREVISION_TEST_ALL");
  make_cifar(in("cifar"), 200, 40);
  const ProgramOptions bf16{.environment = {{"BAREVISION_BF16", "emulated"}}};
  for (const std::string& model : all ? known_models() : Strings{"vit_tiny", "resnet18"})
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::simt}) {
      if (!is_built(kind)) continue;
      for (const std::string precision : {"fp32", "bf16", "fp16"}) {
        const bool cpu = kind == DeviceKind::cpu, half = precision != "fp32";
        if (cpu && (precision == "fp16" || (half && !has_avx512()))) continue;
        if (!all && !cpu && (precision != "fp16" || model != "vit_tiny")) continue;
        const std::string name = model + "-" + (cpu ? "cpu" : "simt") + "-" + precision,
                          size = model.starts_with("vit") ? " --patch-size 8" : "";
        const ProgramOptions options = cpu && half ? bf16 : ProgramOptions{};
        SCOPED_TRACE(name);
        const Finished trained =
            go(model + " --device " + (cpu ? "cpu" : "simt") + " --precision " + precision +
                   " --data cifar --image-size 32" + size +
                   " --batch 2 --lr 1e-6 --steps 2 --eval-every 0 --out " + name,
               options);
        EXPECT_FALSE(has(trained.output + trained.errors, "warning: ")) << trained.output;
        const Finished end =
            run_program(folder_.path(), "lint --strict --config " + name + "/config.json", options);
        EXPECT_EQ(end.code, 0) << end.errors;
        EXPECT_EQ(end.output, "no problems found\n");
        std::filesystem::remove_all(in(name));
      }
    }
}

// A recipe's number of processes and weights are defaults, too.
TEST_F(Recipes, MaySetProcessesAndWeights) {
  const std::string words = "--recipe seedlings_resnet50 --image-size 32 --data photos ";
  const Finished missing = refuse(words, {{"BAREVISION_CACHE", in("cache")}});
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(has(missing.errors,
                  "timm/resnet50.tv_in1k is not in the cache: run ./launcher weights fetch "
                  "timm/resnet50.tv_in1k, or put "));
  const Finished plan = go(words + "--weights none --plan");
  EXPECT_TRUE(has(plan.output, "batch 28 on 2 processes (14 each), fp32;")) << plan.output;
}

}  // namespace
}  // namespace bv::test
