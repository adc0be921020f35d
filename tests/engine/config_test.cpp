// Config files, recipes, the order in which they win, --resume.
#include "engine/options/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "engine/base/error.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

void expect_part(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), error.npos) << error << "\nlacks: " << part;
  EXPECT_EQ(error.find('\n'), error.npos) << "more than one line: " << error;
}

void expect_config_error(const std::string& text, const std::string& part) {
  expect_part(error_of([&] { parse_config(text, "run.json"); }), part);
}

CommandLine given(std::vector<std::string> words) { return parse_command_line(words); }

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
  expect_config_error(R"({"device": "gpu"})", "'device' gpu: is none of auto, cpu, simt, cuda");
  expect_config_error(R"({"mean": 1})", "'mean' 1: must be a list");
  expect_config_error(R"({"mean": ["a", "b", "c"]})", "must be a list of numbers");
  expect_config_error(R"({"classes": [1, 2]})", "must be a list of names");
  expect_config_error(R"({"resume": "x"})", "can't be part of a config");
  expect_config_error(R"({"lr": 1, "lr": 2})", "the key 'lr' is given twice");
  expect_config_error("{\"lr\": 1,\n  \"batch\" 2}",
                      "run.json: line 2, column 11: this is not JSON");
  expect_config_error("", "this is not JSON");
  expect_config_error("[1]", "an object { ... } is expected");
  expect_config_error(R"({"lr": 1e999})", "out of range");
  expect_config_error(R"({"data": "a\u0000b"})", "zero byte");
  expect_config_error("{\"lr\": " + std::string(100000, '['), "nested too deeply");
}

TEST(Config, LaterSourcesWin) {
  TemporaryFolder folder;
  write(folder / "c.json", R"({"lr": 0.5, "batch": 32, "warmup_steps": 7})");
  const ModelConfig model = load_model_config("vit_tiny");

  const Options plain = resolve_options(given({"vit_tiny"}), model, DataKind::builtin);
  EXPECT_EQ(plain.lr, 1e-3);
  EXPECT_EQ(plain.epochs, 2);
  EXPECT_EQ(plain.image_size, 64);
  EXPECT_EQ(plain.patch_size, 8);
  EXPECT_EQ(plain.warmup_steps, 16);
  EXPECT_EQ(plain.warmup_epochs, 0) << "the recipe's section gives steps instead";
  EXPECT_EQ(plain.source("lr"), Source::recipe);
  EXPECT_EQ(plain.source("momentum"), Source::built_in);
  EXPECT_FALSE(plain.is_explicit("batch"));

  const Options mixed = resolve_options(
      given({"vit_tiny", "--config", folder / "c.json", "--local-batch", "8", "--epochs", "5"}),
      model, DataKind::photos);
  EXPECT_EQ(mixed.lr, 0.5);
  EXPECT_TRUE(mixed.is_explicit("lr"));
  EXPECT_EQ(mixed.epochs, 5);
  EXPECT_EQ(mixed.local_batch, 8);
  EXPECT_FALSE(mixed.batch) << "--local-batch takes the config's batch back";
  EXPECT_EQ(mixed.warmup_steps, 7);
  EXPECT_EQ(mixed.warmup_epochs, 0);
  const Options epochs =
      resolve_options(given({"vit_tiny", "--warmup-epochs", "1"}), model, DataKind::builtin);
  EXPECT_EQ(epochs.warmup_epochs, 1);
  EXPECT_EQ(epochs.warmup_steps, 0) << "--warmup-epochs takes the recipe's steps back";
  EXPECT_EQ(mixed.image_size, 224);
  EXPECT_EQ(mixed.patch_size, 16);
}

TEST(Config, SizesAreSettledByTheKindOfData) {
  const ModelConfig model = load_model_config("vit_tiny");
  const Options cifar = resolve_options(given({"vit_tiny"}), model, DataKind::cifar);
  EXPECT_EQ(cifar.image_size, 32);
  EXPECT_EQ(cifar.patch_size, 4);
  const Options large =
      resolve_options(given({"vit_tiny", "--image-size", "64"}), model, DataKind::cifar);
  EXPECT_EQ(large.image_size, 64);
  expect_part(
      error_of([&] {
        resolve_options(given({"vit_tiny", "--image-size", "50"}), model, DataKind::synthetic);
      }),
      "image size 50 is not divisible by the patch size 16; --image-size 48 or 64");
}

// The set-up in which ResNets are compared on CIFAR-10.
TEST(Config, ResnetsTakeCifarsPublishedRecipe) {
  const Options o =
      resolve_options(given({"resnet34"}), load_model_config("resnet34"), DataKind::cifar);
  EXPECT_EQ(o.image_size, 32);
  EXPECT_FALSE(o.patch_size);
  EXPECT_EQ(o.batch, 256);
  EXPECT_EQ(o.optimizer, "sgd");
  EXPECT_EQ(o.lr, 0.1);
  EXPECT_EQ(o.momentum, 0.9);
  EXPECT_EQ(o.weight_decay, 5e-4);
  EXPECT_EQ(o.decay, "all");
  EXPECT_EQ(o.schedule, "cosine");
  EXPECT_EQ(o.schedule_by, "epoch");
  EXPECT_EQ(o.warmup_epochs, 0);
  EXPECT_EQ(o.mean, (std::array<double, 3>{.4914, .4822, .4465}));
  EXPECT_EQ(o.std, (std::array<double, 3>{.2023, .1994, .2010}));
}

TEST(Config, OptionsThatAModelHasNoUseFor) {
  const auto refused = [](std::vector<std::string> words) {
    const ModelConfig model = load_model_config(words[0]);
    return error_of([&] { resolve_options(given(words), model, DataKind::synthetic); });
  };
  expect_part(refused({"resnet34", "--patch-size", "8"}), "--patch-size: resnet34 has no patches");
  expect_part(refused({"resnet34", "--attn-drop-rate", ".1"}),
              "--attn-drop-rate: resnet34 has no attention");
  expect_part(refused({"resnet50", "--drop-path-rate", ".1"}),
              "--drop-path-rate: resnet50 has no stochastic depth");
  expect_part(refused({"vit_tiny", "--sync-bn"}), "--sync-bn: vit_tiny has no batch norm");
  expect_part(refused({"vit_tiny", "--zero-init-last"}), "--zero-init-last: vit_tiny has no batch");
  expect_part(refused({"resnet34", "--image-size", "6"}),
              "the image size 6 is smaller than the first convolution's filter of 7 x 7");
}

TEST(Config, ContradictionsAndUnknownModels) {
  TemporaryFolder folder;
  write(folder / "c.json", R"({"batch": 8, "local_batch": 4})");
  expect_part(error_of([] {
                preliminary_options(given({"vit_tiny", "--batch", "8", "--local-batch", "4"}));
              }),
              "--batch and --local-batch exclude each other");
  expect_part(error_of([&] {
                preliminary_options(given({"vit_tiny", "--config", folder / "c.json"}));
              }),
              "c.json: --batch and --local-batch exclude");
  expect_part(error_of([] { preliminary_options(given({"--lr", "1"})); }), "no MODEL given");
  expect_part(error_of([] { load_model_config("vit_tny"); }),
              "unknown model 'vit_tny' (did you mean vit_tiny?)");
  expect_part(error_of([] { load_model_config("../models/vit_tiny"); }), "unknown model");
  expect_part(error_of([&] {
                preliminary_options(given({"--config", folder / "none.json"}));
              }),
              "none.json: can't be read: No such file");
}

TEST(Config, WhatIsWrittenReadsBackTheSame) {
  Options options = resolve_options(given({"vit_tiny", "--classes", "a,b", "--mean", "0.1,0.2,0.3",
                                           "--lr", "0.1", "--seed", "18446744073709551615"}),
                                    load_model_config("vit_tiny"), DataKind::photos);
  options.classes = {"it's \"quoted\"", "comma, inside"};
  options.data = "/some/\\path";
  options.local_batch = 32;  // resolved from --batch: not written beside it
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
    Options options = resolve_options(given({"vit_tiny", "--lr", "0.25", "-n", "2"}),
                                      load_model_config("vit_tiny"), DataKind::builtin);
    write(folder_ / "config.json", config_to_json(options));
  }
  Options resume(std::vector<std::string> words) const {
    words.insert(words.end(), {"--resume", folder_.path()});
    return initial_options(given(words));
  }
};

TEST_F(Resume, GoesOnWithTheRunsOwnOptions) {
  const Options options = resume({});
  EXPECT_EQ(options.model, "vit_tiny");
  EXPECT_EQ(options.lr, 0.25);
  EXPECT_EQ(options.patch_size, 8);
  EXPECT_EQ(options.warmup_steps, 16);
  EXPECT_EQ(options.nproc, 2);
  EXPECT_EQ(options.out, folder_.path());
}

TEST_F(Resume, SomeMayBeGivenAnew) {
  const Options options = resume(
      {"-n",           "1",      "--epochs",  "9", "--steps",    "100", "--device",       "cpu",
       "--precision",  "fp32",   "--workers", "2", "--cache-mb", "1",   "--log-every",    "3",
       "--save-every", "5steps", "--keep",    "2", "--timeout",  "9",   "--bucket-bytes", "8192",
       "--plan"});
  EXPECT_EQ(options.nproc, 1);
  EXPECT_EQ(options.epochs, 9);
  EXPECT_EQ(options.steps, 100);
  EXPECT_EQ(options.source("steps"), Source::command_line);
  EXPECT_EQ(resume({"vit_tiny", "--lr", "0.25"}).lr, 0.25) << "what it has may be said again";
}

TEST_F(Resume, TheRestIsRefused) {
  expect_part(error_of([&] {
                resume({"--lr", "1"});
              }),
              "--lr can't be given anew with --resume: the run has 0.25; leave it out");
  for (const char* flag : {"--batch", "--image-size", "--seed", "--data", "--accumulate"}) {
    expect_part(error_of([&] { resume({flag, "3"}); }), std::string(flag) + " can't be given anew");
  }
  expect_part(error_of([&] { resume({"vit_large"}); }), "MODEL can't be given anew");
  expect_part(error_of([&] { resume({"--config", "x.json"}); }), "--config can't be given");
}

TEST_F(Resume, NeedsARunFolder) {
  expect_part(error_of([] {
                initial_options(given({"--resume", "/nowhere"}));
              }),
              "--resume /nowhere: there is no such folder");
  std::filesystem::remove(folder_ / "config.json");
  expect_part(error_of([&] { resume({}); }), "not a run folder");
}

const char* const small_model = R"({"description": "d", "family": "vit", "image_size": 8,
  "patch_size": 4, "embed_dim": 6, "depth": 1, "heads": 2, "mlp_ratio": 4, "layer_norm_eps": 1e-6,
  "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "recipe": {"lr": 1}})";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(ModelConfigTest, SizesOfTheModels) {
  EXPECT_EQ(known_models(), (std::vector<std::string>{"resnet34", "resnet50", "resnext50_32x4d",
                                                      "vit_large", "vit_tiny"}));
  const ModelConfig tiny = load_model_config("vit_tiny"), large = load_model_config("vit_large");
  EXPECT_EQ(tiny.embed_dim, 192);
  EXPECT_EQ(tiny.depth, 12);
  EXPECT_EQ(tiny.heads, 3);
  EXPECT_EQ(large.embed_dim, 1024);
  EXPECT_EQ(large.depth, 24);
  EXPECT_EQ(large.heads, 16);
  EXPECT_EQ(tiny.layer_norm_eps, 1e-6);
  EXPECT_EQ(tiny.mean, (std::array<double, 3>{0.5, 0.5, 0.5}));
  EXPECT_EQ(large.std, (std::array<double, 3>{0.5, 0.5, 0.5}));
}

TEST(ModelConfigTest, MistakesNameFileAndKey) {
  const auto error = [](const std::string& from, const std::string& to) {
    return error_of([&] { parse_model_config(changed(small_model, from, to), "m.json", "m"); });
  };
  EXPECT_EQ(error("8", "8"), "no error");
  expect_part(error("\"depth\"", "\"dept\""), "m.json: 'depth' is missing");
  expect_part(error("\"depth\": 1", "\"depth\": 1, \"dept\": 2"),
              "m.json: unknown key 'dept' (did you mean depth?)");
  expect_part(error("\"recipe\"", "\"recipes\""), "unknown key 'recipes' (did you mean recipe?)");
  expect_part(error("\"lr\"", "\"lrr\""), "m.json: recipe: unknown key 'lrr' (did you mean lr?)");
  expect_part(error("\"lr\": 1", "\"data\": \"x\""), "'data' can't be part of a recipe");
  expect_part(error("\"depth\": 1", "\"depth\": 1.5"), "'depth' is not a whole number");
  expect_part(error("\"heads\": 2", "\"heads\": 4"), "not divisible");
  expect_part(error("\"heads\": 2", "\"heads\": 0"), "'heads' must be from 1 to 1024");
  expect_part(error("\"vit\"", "\"vgg\""), "unknown family 'vgg'; there are vit and resnet");
}

const char* const small_resnet = R"({"description": "d", "family": "resnet", "image_size": 8,
  "block": "bottleneck", "layers": [1, 2, 3, 4], "groups": 2, "width_per_group": 4,
  "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]})";

TEST(ModelConfigTest, ResnetsAreReadAndMistakesNamed) {
  const ModelConfig model = parse_model_config(small_resnet, "m.json", "m");
  EXPECT_TRUE(model.bottleneck);
  EXPECT_EQ(model.layers, (std::array<int, 4>{1, 2, 3, 4}));
  EXPECT_EQ(model.groups, 2);
  EXPECT_EQ(model.width_per_group, 4);
  const auto error = [](const std::string& from, const std::string& to) {
    return error_of([&] { parse_model_config(changed(small_resnet, from, to), "m.json", "m"); });
  };
  expect_part(error("\"bottleneck\"", "\"wide\""),
              "m.json: unknown 'block' wide; there are basic and bottleneck");
  expect_part(error("[1, 2, 3, 4]", "[1, 2, 3]"), "m.json: 'layers' must be 4 numbers of blocks");
  expect_part(error("[1, 2,", "[1, 0,"), "m.json: 'layers' must be from 1 to 1024");
  expect_part(error("[1, 2,", "[1, 2.5,"), "m.json: 'layers' is not whole numbers");
  expect_part(error("\"bottleneck\"", "\"basic\""), "'groups' and 'width_per_group' are a bottle");
  expect_part(error("\"block\"", "\"heads\""), "m.json: 'block' is missing");
}

// Readers meet any bytes without a crash, and complain in one line.
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
      switch (below(5)) {
        case 0:
          if (!text.empty()) text[at] = static_cast<char>(random());
          break;
        case 1:
          if (!text.empty()) text[at] ^= static_cast<char>(1 << below(8));
          break;
        case 2:
          text.resize(at);
          break;
        case 3:
          text.erase(at, below(20));
          break;
        default:
          text.insert(at, seed, below(seed.size()), below(40));
          break;
      }
    }
    try {
      if (&seed == &seeds[1]) {
        parse_model_config(text, "m.json", "m");
      } else {
        parse_config(text, "run.json");
      }
    } catch (const UserError& e) {
      ++refused;
      ASSERT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace bv::test
