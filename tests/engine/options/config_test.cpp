// Config files, recipes, their precedence, --resume.
#include "engine/options/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/augmentation.h"
#include "models/resnet.h"
#include "models/vit.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

void expect_config_error(const std::string& text, const std::string& part) {
  EXPECT_TRUE(is_line(error_of([&] { parse_config(text, "run.json"); }), part));
}

using Words = std::vector<std::string>;

CommandLine given(const Words& words) { return parse_command_line(words); }
Options resolve(const Words& words, DataKind kind) {
  return resolve_options(read_request(given(words)), load_model_config(words[0]), kind);
}
std::string preliminary_error(const Words& words) {
  return error_of([&] { read_request(given(words)); });
}

TEST(Config, ReadsValues) {
  const Values values = parse_config(
      R"({"lr": 1e-3, "batch": 1e5, "betas": [0.9, 0.95], "classes": ["a,b", "c"], "steps": null,
          "nesterov": true, "save_every": 3, "seed": 18446744073709551615, "out": "x y"})",
      "run.json");
  EXPECT_EQ(values.at("lr"), Items{"0.001"});
  EXPECT_EQ(values.at("batch"), Items{"100000"});
  EXPECT_EQ(values.at("betas"), (Items{"0.9", "0.95"}));
  EXPECT_EQ(values.at("classes"), (Items{"a,b", "c"}));
  EXPECT_EQ(values.at("nesterov"), Items{"true"});
  EXPECT_EQ(values.at("save_every"), Items{"3"});
  EXPECT_EQ(values.at("seed"), Items{"18446744073709551615"});
  EXPECT_EQ(values.at("out"), Items{"x y"});
  EXPECT_FALSE(values.contains("steps"));
  EXPECT_EQ(parse_config(R"({"//": "mine", "lr": 1, "// b": "c"})", ""), (Values{{"lr", {"1"}}}));
  expect_config_error(R"({"//": 1})", "run.json: unknown key '//'");
  EXPECT_EQ(parse_config(R"({"classes": 12})", "").at("classes"), Items{"12"});
}

TEST(Config, MistakesNameFileAndKey) {
  expect_config_error(R"({"image-size": 32})",
                      "run.json: unknown key 'image-size' (did you mean image_size?)");
  expect_config_error(R"({"lr": "fast"})", "run.json: 'lr' fast: must be a number");
  expect_config_error(R"({"lr": -1})", "'lr' -1: must be at least 0");
  expect_config_error(R"({"lr": [1]})", "'lr': must be a number");
  expect_config_error(R"({"nesterov": 1})", "must be true or false");
  expect_config_error(R"({"device": 1})", "must be text in quotes");
  expect_config_error(R"({"device": "gpu"})", "'device' gpu: must be one of auto, cpu, simt, cuda");
  expect_config_error(R"({"mean": 1})", "'mean' 1: must be a list");
  expect_config_error(R"({"mean": ["a", "b", "c"]})", "must be a list of numbers");
  expect_config_error(R"({"classes": [1, 2]})", "must be a list of names");
  expect_config_error(R"({"resume": "x"})", "can't be part of a config");
  expect_config_error(R"({"lr": 1, "lr": 2})", "the key 'lr' is given twice");
  expect_config_error("{\"lr\": 1,\n  \"batch\" 2}",
                      "run.json: line 2, column 11: this is not JSON: unexpected number literal");
  expect_config_error("{\"lr\": 1,\n \"epochs\": 2 ,\n}",
                      "run.json: line 2, column 14: a comma with nothing after it; remove it");
  expect_config_error("{\"betas\": [0.9, 0.99,]}", "line 1, column 21: a comma with nothing");
  expect_config_error("{}}", "line 1, column 3: this is not JSON");
  for (const char* empty : {"", " \n"}) expect_config_error(empty, "run.json: is empty");
  expect_config_error("# mine\nlr: 0.1\nepochs: 2\n",
                      "run.json: looks like YAML; write JSON: {\"key\": value, ...}");
  expect_config_error("lr = 0.1\n", "run.json: looks like TOML; write JSON: {");
  expect_config_error("lr", "line 1, column 1: this is not JSON");
  expect_config_error(R"({"learning_rate": 1})", "run.json: unknown key 'learning_rate': use lr");
  expect_config_error(R"({"batch_size": 1})",
                      "unknown key 'batch_size': use batch, of all processes together "
                      "(local_batch: of each)");
  expect_config_error(R"({"mean": [124, 116, 104]})",
                      "must be at least 0 and at most 1; divide values of 0-255 by 255");
  expect_config_error("[1]", "an object { ... } is expected");
  expect_config_error(R"({"lr": 1e999})", "out of range");
  expect_config_error(R"({"data": "a\u0000b"})", "zero byte");
  expect_config_error("{\"lr\": " + std::string(100000, '['), "nested too deeply");
}

TEST(Config, LaterSourcesWin) {
  TemporaryFolder folder;
  write_text(folder / "c.json", R"({"lr": 0.5, "batch": 32, "warmup_steps": 7})");
  const Options plain = resolve({"vit_tiny"}, DataKind::builtin);
  EXPECT_EQ(plain.lr, 5e-4);
  EXPECT_EQ(plain.epochs, 5);
  EXPECT_EQ(plain.image_size, 64);
  EXPECT_EQ(plain.patch_size, 16);
  EXPECT_EQ(plain.warmup_steps, 16);
  EXPECT_EQ(plain.warmup_epochs, 0) << "the recipe's section gives steps instead";
  EXPECT_EQ(plain.source("lr"), Source::recipe);
  EXPECT_EQ(plain.source("momentum"), Source::built_in);
  EXPECT_FALSE(plain.is_explicit("batch"));

  const Options mixed =
      resolve({"vit_tiny", "--config", folder / "c.json", "--local-batch", "8", "--epochs", "5"},
              DataKind::photos);
  EXPECT_EQ(mixed.lr, 0.5);
  EXPECT_TRUE(mixed.is_explicit("lr"));
  EXPECT_EQ(mixed.epochs, 5);
  EXPECT_EQ(mixed.local_batch, 8);
  EXPECT_FALSE(mixed.batch) << "--local-batch unsets the config's batch";
  EXPECT_EQ(mixed.warmup_steps, 7);
  EXPECT_EQ(mixed.warmup_epochs, 0);
  const Options epochs = resolve({"vit_tiny", "--warmup-epochs", "1"}, DataKind::builtin);
  EXPECT_EQ(epochs.warmup_epochs, 1);
  EXPECT_EQ(epochs.warmup_steps, 0) << "--warmup-epochs unsets the recipe's steps";
  EXPECT_EQ(mixed.image_size, 224);
  EXPECT_EQ(mixed.patch_size, 16);
}

TEST(Config, FilesAreReadOnce) {
  const TemporaryFolder folder;
  write_text(folder / "c.json", R"({"lr": 0.125})");
  const Request request = read_request(given({"vit_tiny", "--config", folder / "c.json"}));
  write_text(folder / "c.json", R"({"lr": 0.25})");
  EXPECT_EQ(resolve_options(request, request.model, DataKind::cifar).lr, 0.125);
}

TEST(Config, SizesFollowTheKindOfData) {
  const Options cifar = resolve({"vit_tiny"}, DataKind::cifar);
  EXPECT_EQ(cifar.image_size, 32);
  EXPECT_EQ(cifar.patch_size, 4);
  const Options larger = resolve({"vit_tiny", "--image-size", "64"}, DataKind::cifar);
  EXPECT_EQ(larger.image_size, 64);
  EXPECT_EQ(larger.patch_size, 4);
  EXPECT_EQ(resolve({"vit_large", "--image-size", "224"}, DataKind::cifar).patch_size, 16);
  EXPECT_EQ(
      resolve({"vit_tiny", "--image-size", "224", "--patch-size", "8"}, DataKind::cifar).patch_size,
      8);
}

// The crops and flips for CIFAR are those with which ResNets are usually compared on it.
TEST(Config, CropsAndFlipsFollowTheKindOfData) {
  const auto crop = [](DataKind kind) {
    const Options o = resolve({"vit_tiny"}, kind);
    return word_of(*o.train_crop) + ' ' + format_number(*o.hflip);
  };
  EXPECT_EQ(crop(DataKind::photos), "random-resized 0.5");
  EXPECT_EQ(crop(DataKind::cifar), "padded 0.5");
  EXPECT_EQ(crop(DataKind::builtin), "none 0.5");
  EXPECT_EQ(crop(DataKind::synthetic), "none 0");
  EXPECT_EQ(resolve({"vit_tiny", "--hflip", ".2"}, DataKind::builtin).hflip, 0.2);
}

TEST(Config, AugmentStandsForOtherOptionsWhichWin) {
  const auto text = [](Words words, DataKind kind = DataKind::cifar) {
    words.insert(words.begin(), "vit_tiny");
    const Options o = resolve(words, kind);
    return augmentation_text(o) + "; " + word_of(*o.train_crop) + ' ' + format_number(*o.hflip);
  };
  EXPECT_EQ(text({}), "basic; padded 0.5");
  EXPECT_EQ(text({"--augment", "none"}), "none; none 0");
  EXPECT_EQ(text({"--augment", "strong"}),
            "strong, auto-augment ra 2 x 9, erasing 0.25, mixup 0.8, cutmix 1; random-resized 0.5");
  EXPECT_EQ(text({"--ra-magnitude", "5", "--augment", "strong", "--random-erase", "0", "--mixup",
                  "0", "--cutmix", "0"}),
            "strong, auto-augment ra 2 x 5; random-resized 0.5");
  EXPECT_EQ(text({"--augment", "none", "--hflip", "1"}), "none; none 1");
  EXPECT_EQ(text({"--auto-augment", "ra-dali", "--color-jitter", "0.4"}),
            "basic, auto-augment ra-dali 2 x 10, color jitter 0.4 0.4 0.4 0; padded 0.5");
  // A later source's preset undoes an earlier source's.
  const TemporaryFolder folder;
  write_text(folder / "c.json", R"({"augment": "strong", "hflip": 0.3})");
  EXPECT_EQ(text({"--config", folder / "c.json"}),
            "strong, auto-augment ra 2 x 9, erasing 0.25, mixup 0.8, cutmix 1; random-resized 0.3");
  EXPECT_EQ(text({"--config", folder / "c.json", "--augment", "basic"}), "basic; padded 0.5");
  // A run's own config.json has all values, and keeps them under the same --augment.
  const Options o =
      resolve({"vit_tiny", "--augment", "strong", "--random-erase", "0.1"}, DataKind::photos);
  write_text(folder / "run.json", config_to_json(o));
  EXPECT_EQ(text({"--config", folder / "run.json"}, DataKind::photos),
            "strong, auto-augment ra 2 x 9, erasing 0.1, mixup 0.8, cutmix 1; random-resized 0.5");
}

// The run's config.json has --augment strong, which implied fewer options when the run began.
TEST(Config, AResumedRunKeepsWhatAugmentStoodFor) {
  const TemporaryFolder folder;
  const Options o = resolve({"vit_tiny", "--augment", "strong"}, DataKind::photos);
  EXPECT_EQ(o.mixup, 0.8);
  std::string config = config_to_json(o);
  write_text(folder / "config.json", config);
  EXPECT_EQ(read_request(given({"--resume", folder.path()})).options.mixup, 0.8);
  for (const char* line : {"  \"mixup\": 0.8,\n", "  \"cutmix\": 1,\n"})
    config = replaced(config, line, "");
  write_text(folder / "config.json", config);
  const Options resumed = read_request(given({"--resume", folder.path()})).options;
  EXPECT_EQ(augmentation_text(resumed), "strong, auto-augment ra 2 x 9, erasing 0.25");
  // A config.json older than all of these options.
  write_text(folder / "config.json", R"({"model": "vit_tiny", "augment": "none"})");
  EXPECT_EQ(read_request(given({"--resume", folder.path()})).options.train_crop, TrainCrop::none);
}

TEST(Config, MixingIsTimms) {
  const auto mixing = [](Words words) {
    words.insert(words.begin(), "vit_tiny");
    return mixing_of(resolve(words, DataKind::cifar));
  };
  EXPECT_FALSE(mixing({}).any());
  const Mixing strong = mixing({"--augment", "strong", "--mixup-off-epoch", "3"});
  EXPECT_EQ(strong.mixup, 0.8);
  EXPECT_EQ(strong.cutmix, 1);
  EXPECT_EQ(strong.switch_prob, 0.5);
  EXPECT_EQ(strong.prob, 1);
  EXPECT_EQ(strong.mode, MixMode::batch);
  EXPECT_EQ(strong.off_epoch, 3);
  // With --cutmix-minmax, timm takes --cutmix as 1.
  const Mixing sides = mixing({"--cutmix-minmax", "0.2,0.8", "--mixup-mode", "elem"});
  EXPECT_EQ(sides.cutmix, 1);
  EXPECT_EQ(sides.minmax, (std::array<double, 2>{0.2, 0.8}));
  EXPECT_EQ(mixing({"--cutmix-minmax", "0.2,0.8", "--cutmix", "0.3"}).cutmix, 1);
  EXPECT_EQ(sides.mode, MixMode::elem);
  EXPECT_FALSE(mixing({"--augment", "basic"}).any());
  const Options o =
      resolve({"vit_tiny", "--mixup", ".2", "--cutmix-minmax", ".2,.8", "--mixup-mode", "pair",
               "--mixup-prob", ".5", "--mixup-off-epoch", "1"},
              DataKind::cifar);
  EXPECT_EQ(augmentation_text(o),
            "basic, mixup 0.2, cutmix 0.2-0.8 (by pair, probability 0.5, 1 epoch)");
}

TEST(Config, AugmentationThatCannotBe) {
  const auto refused = [](Words words, const std::string& part) {
    words.insert(words.begin(), "vit_tiny");
    EXPECT_TRUE(is_line(error_of([&] { resolve(words, DataKind::cifar); }), part));
  };
  refused({"--auto-augment", "ta-wide"},
          "ta-wide: must be one of none, ra, ra-dali, ta_wide, "
          "cifar10, imagenet (did you mean ta_wide?)");
  refused({"--auto-augment", "ra", "--ra-magnitude", "31"}, "--ra-magnitude 31: must be");
  refused({"--auto-augment", "ra-dali", "--ra-magnitude", "11"},
          "--ra-magnitude 11: --auto-augment ra-dali has magnitudes of 0 to 10");
  refused({"--ra-magnitude", "5"}, "--ra-magnitude has no effect without --auto-augment ra or");
  refused({"--scale", "0.1,1"}, "--scale has no effect without --train-crop random-resized");
  refused({"--train-crop", "none", "--padding", "2"}, "--padding has no effect without");
  refused({"--train-crop", "random-resized", "--ratio", "2,1"}, "--ratio 2,1: the smaller");
  refused({"--padding", "32"}, "--padding 32: a crop of 32 pixels might miss the image");
  refused({"--color-jitter", ".1,.1,.1,.6"}, "--color-jitter 0.6: hue must be");
  refused({"--color-jitter", ".1,.1"}, "must be one number, three or four");
  refused({"--random-erase", "1.1"}, "at most 1");
  refused({"--mixup", "-0.1"}, "--mixup -0.1: must be at least 0 and at most 1000");
  refused({"--cutmix", "1001"}, "--cutmix 1001: must be at least 0 and at most 1000");
  refused({"--mixup", "nan"}, "--mixup nan: is not a number");
  refused({"--mixup", ".2", "--mixup-prob", "1.1"}, "--mixup-prob 1.1: must be at least 0 and at");
  refused({"--augment", "strong", "--mixup-switch-prob", "-1"}, "--mixup-switch-prob -1: must be");
  refused({"--mixup", ".2", "--mixup-mode", "pairs"},
          "--mixup-mode pairs: must be one of batch, pair, elem (did you mean pair?)");
  refused({"--mixup", ".2", "--mixup-off-epoch", "-1"}, "--mixup-off-epoch -1: must be at least 0");
  refused({"--cutmix-minmax", ".8,.2"}, "--cutmix-minmax 0.8,0.2: must increase");
  refused({"--cutmix-minmax", ".3,.3"}, "--cutmix-minmax 0.3,0.3: must increase");
  refused({"--cutmix-minmax", ".2"}, "--cutmix-minmax .2: must be 2 numbers");
  refused({"--cutmix-minmax", ".2,1.2"},
          "--cutmix-minmax .2,1.2: must be at least 0 and at most 1");
  refused({"--cutmix-minmax", ".2,.21"},
          "--cutmix-minmax 0.2,0.21: no whole number of pixels is between them in images of 32");
  refused({"--mixup-prob", ".5"}, "--mixup-prob has no effect without --mixup or --cutmix");
  refused({"--mixup-mode", "pair"}, "--mixup-mode has no effect without --mixup or --cutmix");
  refused({"--mixup-off-epoch", "5"}, "--mixup-off-epoch has no effect without --mixup or");
  refused({"--mixup", "1", "--mixup-switch-prob", ".5"},
          "--mixup-switch-prob has no effect without both --mixup and --cutmix");
  refused({"--augment", "strong", "--mixup", "0", "--cutmix", "0", "--mixup-prob", ".5"},
          "--mixup-prob has no effect without --mixup or --cutmix");
  refused({"--hflip", "-0.1"}, "at least 0");
}

TEST(Config, ResnetsTakeCifarsPublishedRecipe) {
  const Options o = resolve({"resnet34"}, DataKind::cifar);
  EXPECT_EQ(o.image_size, 32);
  EXPECT_FALSE(o.patch_size);
  EXPECT_EQ(o.batch, 256);
  EXPECT_EQ(o.optimizer, OptimizerKind::sgd);
  EXPECT_EQ(o.lr, 0.1);
  EXPECT_EQ(o.momentum, 0.9);
  EXPECT_EQ(o.weight_decay, 5e-4);
  EXPECT_EQ(o.decay, Decay::all);
  EXPECT_EQ(o.schedule, Curve::cosine);
  EXPECT_EQ(o.schedule_by, ScheduleBy::epoch);
  EXPECT_EQ(o.warmup_epochs, 0);
  EXPECT_EQ(o.mean, (std::array<double, 3>{.4914, .4822, .4465}));
  EXPECT_EQ(o.std, (std::array<double, 3>{.2023, .1994, .2010}));
}

TEST(Config, OptionsThatDontSuitTheModel) {
  const auto expect_refused = [](const Words& words, const std::string& part) {
    EXPECT_TRUE(is_line(error_of([&] { resolve(words, DataKind::synthetic); }), part));
  };
  expect_refused({"vit_tiny", "--image-size", "50"},
                 "image size 50 is not divisible by the patch size 16; --image-size 48 or 64");
  expect_refused({"resnet34", "--patch-size", "8"}, "--patch-size: resnet34 has no patches");
  expect_refused({"resnet34", "--representation-size", "8"},
                 "--representation-size: resnet34 has no class token");
  expect_refused({"vit_tiny_distilled", "--representation-size", "8"},
                 "--representation-size: vit_tiny_distilled has two heads, each of which reads its "
                 "own token; this option needs a model with one");
  expect_refused({"resnet34", "--pos-drop-rate", ".1"},
                 "--pos-drop-rate: resnet34 has no position embedding");
  expect_refused({"resnet34", "--proj-drop-rate", ".1"},
                 "--proj-drop-rate: resnet34 has no attention");
  expect_refused({"resnet34", "--attn-drop-rate", ".1"},
                 "--attn-drop-rate: resnet34 has no attention");
  expect_refused({"resnet50", "--drop-path-rate", ".1"},
                 "--drop-path-rate: resnet50 has no stochastic depth");
  expect_refused({"vit_tiny", "--sync-bn"}, "--sync-bn: vit_tiny has no batch norm");
  expect_refused({"vit_tiny", "--zero-init-last"}, "--zero-init-last: vit_tiny has no batch");
  expect_refused({"resnet34", "--image-size", "6"},
                 "the image size 6 is smaller than the first convolution's filter of 7 x 7");
}

TEST(Config, ContradictionsAndUnknownModels) {
  TemporaryFolder folder;
  write_text(folder / "c.json", R"({"batch": 8, "local_batch": 4})");
  EXPECT_TRUE(is_line(preliminary_error({"vit_tiny", "--batch", "8", "--local-batch", "4"}),
                      "--batch and --local-batch can't be used together"));
  EXPECT_TRUE(is_line(preliminary_error({"vit_tiny", "--config", folder / "c.json"}),
                      "c.json: --batch and --local-batch can't be used"));
  EXPECT_TRUE(is_line(preliminary_error({"--lr", "1"}), "no MODEL given"));
  EXPECT_TRUE(
      is_line(preliminary_error({"--config", folder / "none.json"}), "none.json: no such file"));
  EXPECT_TRUE(is_line(error_of([] { load_model_config("vit_tny"); }),
                      "unknown model 'vit_tny' (did you mean vit_tiny?)"));
  EXPECT_TRUE(is_line(error_of([] { load_model_config("../models/vit_tiny"); }), "unknown model"));
  const auto expect_advice = [](const std::string& name, const std::string& advice) {
    EXPECT_TRUE(is_line(error_of([&] { load_model_config(name); }),
                        "unknown model '" + name + "'" + advice + "; available: resnet101, "));
  };
  expect_advice("vit_huge_patch14_224",
                ": not in barevision; nearest: vit_large (304 M), vit_base (86.6 M)");
  expect_advice("vit_medium",
                ": not in barevision; nearest: vit_small (22.1 M), vit_base (86.6 M)");
  expect_advice("resnet26", ": not in barevision; nearest: resnet34 (21.8 M), resnet18 (11.7 M)");
  expect_advice("resnet18d", ": not in barevision; nearest: resnet18 (11.7 M), resnet34 (21.8 M)");
  expect_advice("swin_tiny_patch4_window7_224.ms_in1k",
                ": not in barevision; nearest: vit_small (22.1 M), vit_base (86.6 M)");
  expect_advice("vit_tiny_patch16_224",
                ": use vit_tiny (--patch-size 16 --image-size 224 are its defaults)");
  expect_advice("vit_base_patch16_384", ": use vit_base --patch-size 16 --image-size 384");
  expect_advice("hf_hub:timm/vit_large_patch32_384.orig_in21k",
                ": use vit_large --patch-size 32 --image-size 384; its weights: --weights "
                "timm/vit_large_patch32_384.orig_in21k if ./launcher weights list has it, or "
                "FILE, the model.safetensors of "
                "huggingface.co/timm/vit_large_patch32_384.orig_in21k");
  expect_advice("deit_tiny_distilled_patch16_224.fb_in1k",
                ": use vit_tiny_distilled (--patch-size 16 --image-size 224 are its "
                "defaults); its weights: --weights "
                "timm/deit_tiny_distilled_patch16_224.fb_in1k if ./launcher weights list has it, "
                "or FILE, the model.safetensors of "
                "huggingface.co/timm/deit_tiny_distilled_patch16_224.fb_in1k");
  expect_advice("resnet50.a1_in1k",
                ": use resnet50; its weights: --weights timm/resnet50.a1_in1k if "
                "./launcher weights list has it, or FILE, the model.safetensors of "
                "huggingface.co/timm/resnet50.a1_in1k");
  expect_advice("deit_base_distilled_patch16_224",
                ": not in barevision; nearest: vit_base (86.6 M), vit_large (304 M)");
  expect_advice("deit_tiny", ": use vit_tiny");
  expect_advice("resnext101_32x8d",
                ": not in barevision; nearest: resnext50_32x4d (25.0 M), resnet152 (60.2 M)");
  expect_advice("resnet200d.ra2_in1k",
                ": not in barevision; nearest: resnet152 (60.2 M), resnet101 (44.5 M)");
  expect_advice("vit_tiny_patch16_clip_224", "");
}

TEST(Config, WhatIsWrittenReadsBackTheSame) {
  Options options = resolve({"vit_tiny", "--classes", "a,b", "--mean", "0.1,0.2,0.3", "--lr", "0.1",
                             "--seed", "18446744073709551615"},
                            DataKind::photos);
  options.classes = {"it's \"quoted\"", "comma, inside"};
  options.data = "/some/\\path";
  options.local_batch = 32;  // resolved from --batch: not written next to it
  const std::string text = config_to_json(options);
  const Values values = parse_config(text, "config.json");
  Options read;
  for (const auto& [name, items] : values) assign(read, *find_option(name), items, name);
  EXPECT_EQ(config_to_json(read), text);
  EXPECT_EQ(read.classes, options.classes);
  EXPECT_EQ(read.mean, options.mean);
  EXPECT_EQ(read.seed, options.seed);
  EXPECT_EQ(read.batch, options.batch);
  EXPECT_FALSE(read.local_batch);
}

class Resume : public testing::Test {
 protected:
  TemporaryFolder folder_;
  void SetUp() override {
    write_text(folder_ / "config.json",
               config_to_json(resolve({"vit_tiny", "--lr", "0.25", "-n", "2"}, DataKind::builtin)));
  }
  Options resume(Words words) const {
    words.insert(words.end(), {"--resume", folder_.path()});
    return read_request(given(words)).options;
  }
  void expect_refused(const Words& words, const std::string& part) const {
    EXPECT_TRUE(is_line(error_of([&] { resume(words); }), part));
  }
};

TEST_F(Resume, KeepsTheRunsOptions) {
  const Options options = resume({});
  EXPECT_EQ(options.model, "vit_tiny");
  EXPECT_EQ(options.lr, 0.25);
  EXPECT_EQ(options.patch_size, 16);
  EXPECT_EQ(options.warmup_steps, 16);
  EXPECT_EQ(options.nproc, 2);
  EXPECT_EQ(options.out, folder_.path());
}

TEST_F(Resume, SomeMayChange) {
  const Options options = resume(
      {"-n",           "1",      "--epochs",  "9", "--steps",    "100", "--device",       "cpu",
       "--precision",  "fp32",   "--workers", "2", "--cache-mb", "1",   "--log-every",    "3",
       "--save-every", "5steps", "--keep",    "2", "--timeout",  "9",   "--bucket-bytes", "8192",
       "--plan"});
  EXPECT_EQ(options.nproc, 1);
  EXPECT_EQ(options.epochs, 9);
  EXPECT_EQ(options.steps, 100);
  EXPECT_EQ(options.source("steps"), Source::command_line);
  EXPECT_EQ(resume({"vit_tiny", "--lr", "0.25"}).lr, 0.25) << "an equal value is accepted";
}

TEST_F(Resume, TheRestIsRefused) {
  expect_refused({"--lr", "1"},
                 "--lr can't be changed with --resume: the run has 0.25; leave it out");
  for (const char* flag : {"--batch", "--image-size", "--seed", "--data", "--accumulate"})
    expect_refused({flag, "3"}, std::string(flag) + " can't be changed");
  expect_refused({"vit_large"}, "MODEL can't be changed");
}

TEST_F(Resume, AConfigFileMustAgree) {
  const std::string file = folder_ / "given.json";
  write_text(file, R"({"model": "vit_tiny", "lr": 0.25, "epochs": 7, "out": "elsewhere"})");
  EXPECT_EQ(resume({"--config", file}).epochs, 7);
  EXPECT_EQ(resume({"--config", file, "--epochs", "8"}).epochs, 8);
  EXPECT_EQ(resume({"--config", file}).out, folder_.path());
  write_text(file, R"({"lr": 0.5})");
  expect_refused({"--config", file},
                 file + ": lr can't be changed with --resume: the run has 0.25; leave it out");
  EXPECT_EQ(resume({"--config", file, "--lr", "0.25"}).lr, 0.25) << "the command line counts";
}

TEST_F(Resume, ARecipeMustAgree) {
  const Words words{"--recipe", "cifar10_resnet34"};
  const Request request = read_request(given(words));
  write_text(folder_ / "config.json",
             config_to_json(resolve_options(request, request.model, DataKind::cifar)));
  EXPECT_EQ(resume(words).model, "resnet34");
  expect_refused({"--recipe", "seedlings_resnet50"}, "--recipe seedlings_resnet50: ");
}

// The command that started the run also resumes it.
TEST_F(Resume, WithAModelStartsARunWhereThereIsNone) {
  const auto requested = [](Words words) { return read_request(given(words)).options; };
  const std::string fresh = folder_ / "fresh";
  for (const Words& words : {Words{"vit_tiny", "--resume", fresh},
                             Words{"vit_tiny", "--resume", "auto", "--out", fresh}}) {
    const Options first = requested(words);
    EXPECT_EQ(first.model, "vit_tiny");
    EXPECT_EQ(first.out, fresh);
    EXPECT_EQ(first.resume, "");
  }
  const Options again =
      requested({"vit_tiny", "--lr", "0.25", "--resume", "auto", "--out", folder_.path()});
  EXPECT_EQ(again.resume, folder_.path());
  EXPECT_EQ(again.patch_size, 16);
  const auto refused = [&](const Words& words, const std::string& part) {
    EXPECT_TRUE(is_line(error_of([&] { requested(words); }), part));
  };
  refused({"vit_tiny", "--resume", "auto"}, "--resume auto needs --out DIR");
  refused({"--resume", "auto", "--out", fresh}, ": no such folder");
  refused({"vit_tiny", "--resume", fresh, "--out", "x"}, "both name the run's folder");
}

TEST_F(Resume, NeedsARunFolder) {
  EXPECT_TRUE(is_line(error_of([] {
                        read_request(given({"--resume", "/nowhere"}));
                      }),
                      "--resume /nowhere: no such folder"));
  std::filesystem::remove(folder_ / "config.json");
  expect_refused({}, "not a run folder");
}

const char* const small_model = R"({"description": "d", "family": "vit", "image_size": 8,
  "patch_size": 4, "embed_dim": 6, "depth": 1, "heads": 2, "mlp_ratio": 4, "layer_norm_eps": 1e-6,
  "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "recipe": {"lr": 1}})";

TEST(ModelConfigTest, SizesOfTheModels) {
  const std::vector<std::string> models = known_models();
  EXPECT_TRUE(std::ranges::is_sorted(models));
  EXPECT_EQ(std::ranges::count(models, "vit_tiny_distilled"), 1);
  for (const std::string& name : models) EXPECT_EQ(load_model_config(name).name, name);
  const auto vit = [](const char* name) {
    return std::any_cast<VitConfig>(load_model_config(name).sizes);
  };
  const VitConfig tiny = vit("vit_tiny"), large = vit("vit_large");
  EXPECT_EQ(tiny.embed_dim, 192);
  EXPECT_EQ(tiny.depth, 12);
  EXPECT_EQ(tiny.heads, 3);
  EXPECT_EQ(large.embed_dim, 1024);
  EXPECT_EQ(large.depth, 24);
  EXPECT_EQ(large.heads, 16);
  EXPECT_EQ(tiny.layer_norm_eps, 1e-6f);
  EXPECT_FALSE(tiny.distilled);
  EXPECT_TRUE(vit("vit_tiny_distilled").distilled);
  EXPECT_EQ(load_model_config("vit_tiny").mean, (std::array<double, 3>{0.5, 0.5, 0.5}));
  EXPECT_EQ(load_model_config("vit_large").std, (std::array<double, 3>{0.5, 0.5, 0.5}));
}

// Expects an error for a model file with one change.
void expect_model_error(const char* model, const std::string& from, const std::string& to,
                        const std::string& part) {
  const std::string text = replaced(model, from, to);
  EXPECT_TRUE(is_line(error_of([&] { parse_model_config(text, "m.json", "m"); }), part));
}

TEST(ModelConfigTest, MistakesNameFileAndKey) {
  expect_model_error(small_model, "8", "8", "no error");
  expect_model_error(small_model, "\"depth\"", "\"dept\"", "m.json: 'depth' is missing");
  expect_model_error(small_model, "\"depth\"", "\"distilled\": 1, \"depth\"",
                     "m.json: 'distilled' must be true or false");
  expect_model_error(small_model, "\"depth\": 1", "\"depth\": 1, \"dept\": 2",
                     "m.json: unknown key 'dept' (did you mean depth?)");
  expect_model_error(small_model, "\"recipe\"", "\"recipes\"",
                     "unknown key 'recipes' (did you mean recipe?)");
  expect_model_error(small_model, "\"lr\"", "\"lrr\"",
                     "m.json: recipe: unknown key 'lrr' (did you mean lr?)");
  expect_model_error(small_model, "\"lr\": 1", "\"data\": \"x\"",
                     "'data' can't be part of a recipe");
  expect_model_error(small_model, "\"depth\": 1", "\"depth\": 1.5",
                     "'depth' is not a whole number");
  expect_model_error(small_model, "\"heads\": 2", "\"heads\": 4", "not divisible");
  expect_model_error(small_model, "\"heads\": 2", "\"heads\": 0", "'heads' must be from 1 to 1024");
  expect_model_error(small_model, "\"vit\"", "\"vitt\"", "unknown family 'vitt'; available: vit, ");
}

const char* const small_resnet = R"({"description": "d", "family": "resnet", "image_size": 8,
  "block": "bottleneck", "layers": [1, 2, 3, 4], "groups": 2, "width_per_group": 4,
  "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]})";

TEST(ModelConfigTest, ResnetsAreReadAndMistakesNamed) {
  const auto model =
      std::any_cast<ResnetConfig>(parse_model_config(small_resnet, "m.json", "m").sizes);
  EXPECT_TRUE(model.bottleneck);
  EXPECT_EQ(model.layers, (std::array<int, 4>{1, 2, 3, 4}));
  EXPECT_EQ(model.groups, 2);
  EXPECT_EQ(model.width_per_group, 4);
  expect_model_error(small_resnet, "\"bottleneck\"", "\"wide\"",
                     "m.json: unknown 'block' wide; must be basic or bottleneck");
  expect_model_error(small_resnet, "[1, 2, 3, 4]", "[1, 2, 3]",
                     "m.json: 'layers' must be 4 numbers of blocks");
  expect_model_error(small_resnet, "[1, 2,", "[1, 0,", "m.json: 'layers' must be from 1 to 1024");
  expect_model_error(small_resnet, "[1, 2,", "[1, 2.5,", "m.json: 'layers' must be whole numbers");
  expect_model_error(small_resnet, "\"bottleneck\"", "\"basic\"",
                     "'groups' and 'width_per_group' need bottle");
  expect_model_error(small_resnet, "\"block\"", "\"heads\"", "m.json: 'block' is missing");
}

// Readers survive any bytes and report errors in one line.
TEST(ConfigMutants, EndInValuesOrAUserError) {
  const std::string seeds[] = {
      config_to_json(Options{}), small_model,
      R"({"classes": ["a", "\u00e9"], "betas": [0.9, 1e-3], "seed": 1, "mean": [0, 0.5, 1]})"};
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return random() % std::max<size_t>(n, 1); };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string& seed = seeds[below(3)];
    std::string text = seed;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(text.size());
      const size_t kind = below(5);
      if (kind == 0 && !text.empty()) text[at] = static_cast<char>(random());
      if (kind == 1 && !text.empty()) text[at] ^= static_cast<char>(1 << below(8));
      if (kind == 2) text.resize(at);
      if (kind == 3) text.erase(at, below(20));
      if (kind == 4) text.insert(at, seed, below(seed.size()), below(40));
    }
    const std::string error = error_of([&] {
      if (&seed == &seeds[1])
        parse_model_config(text, "m.json", "m");
      else
        parse_config(text, "run.json");
    });
    refused += error != "no error";
    ASSERT_TRUE(is_line(error, ""));
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace bv::test
