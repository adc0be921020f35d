// --recipe NAME: the files in models/recipes/, their allowed contents, and their precedence.
#include "engine/options/named_recipe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/training/schedule.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;

Options resolve(const Words& words, DataKind kind) {
  const Request request = read_request(parse_command_line(words));
  return resolve_options(request, request.model, kind);
}

void expect_refused(const Words& words, const std::string& part) {
  EXPECT_TRUE(is_line(error_of([&] { resolve(words, DataKind::cifar); }), part));
}

void expect_bad_file(const std::string& members, const std::string& part) {
  const std::string text = R"({"description": "d", "model": "vit_tiny", )" + members + "}";
  EXPECT_TRUE(is_line(error_of([&] { parse_recipe(text, "r.json", "r"); }), part));
}

TEST(NamedRecipe, EveryValueSaysWhereItIsFrom) {
  const Words names = known_recipes();
  for (const char* name :
       {"flowers_vit_tiny", "cifar10_resnet34", "cifar10_vit_large", "seedlings_resnet50"}) {
    EXPECT_TRUE(std::ranges::count(names, name)) << name;
    EXPECT_TRUE(std::ranges::count(names, std::string(name) + "_as_published")) << name;
  }
  for (const std::string& name : names) {
    const NamedRecipe recipe = load_recipe(name);
    EXPECT_FALSE(recipe.origin.empty()) << name;
    for (const NamedRecipe::Part& part : recipe.parts) {
      const bool published = part.comment.starts_with("published: "),
                 departs = part.comment.starts_with("departure: ");
      EXPECT_TRUE(published || departs) << name << ": " << part.comment;
      EXPECT_FALSE(departs && name.ends_with("_as_published")) << name << ": " << part.comment;
    }
  }
}

// Under a named recipe, a model's own recipe has no effect.
TEST(NamedRecipe, SetsWhateverTheModelsRecipesSet) {
  for (const std::string& name : known_recipes()) {
    const NamedRecipe recipe = load_recipe(name);
    for (const auto& [section, values] : load_model_config(recipe.model).recipes)
      for (const auto& [option, items] : values) {
        const bool warmup = option == "warmup_steps" && recipe.values.contains("warmup_epochs");
        const bool unread = option == "momentum" && recipe.values.at("optimizer")[0] != "sgd";
        const bool elsewhere = section == "recipe_builtin";  // named recipes are for other images
        EXPECT_TRUE(warmup || unread || elsewhere || recipe.values.contains(option))
            << name << ": " << option;
      }
  }
}

TEST(NamedRecipe, StandsBetweenTheModelsRecipeAndTheConfig) {
  const TemporaryFolder folder;
  write_text(folder / "c.json", R"({"lr": 0.5, "clip_grad": 2})");
  const Options plain = resolve({"--recipe", "flowers_vit_tiny"}, DataKind::photos);
  EXPECT_EQ(plain.model, "vit_tiny");
  EXPECT_EQ(plain.optimizer, OptimizerKind::sgd);
  EXPECT_EQ(plain.lr, 0.1);
  EXPECT_EQ(plain.warmup_epochs, 0) << "the model's recipe has 2";
  EXPECT_EQ(plain.val_fraction, 0.2);
  EXPECT_EQ(plain.pos_drop_rate, 0.1);
  EXPECT_EQ(plain.source("lr"), Source::named_recipe);
  EXPECT_FALSE(plain.is_explicit("batch")) << "a default, which is rounded to fit";
  const Options mixed = resolve({"vit_tiny", "--recipe", "flowers_vit_tiny", "--config",
                                 folder / "c.json", "--clip-grad", "3"},
                                DataKind::photos);
  EXPECT_EQ(mixed.lr, 0.5);
  EXPECT_EQ(mixed.clip_grad, 3);
  EXPECT_EQ(mixed.batch, 128);
  const Options cifar = resolve({"--recipe", "cifar10_vit_large"}, DataKind::cifar);
  EXPECT_EQ(cifar.image_size, 224) << "not the data's 32";
  EXPECT_EQ(cifar.patch_size, 16) << "nor its section's 4";
  EXPECT_EQ(cifar.nproc, 2);
  EXPECT_EQ(cifar.pipeline, 2);
  EXPECT_EQ(cifar.micro_batches, 4);
}

TEST(NamedRecipe, WeightsAreTheRecipesUnlessThereShallBeNone) {
  const Words seedlings = {"--recipe", "seedlings_resnet50"};
  EXPECT_EQ(resolve(seedlings, DataKind::photos).weights, "timm/resnet50.tv_in1k");
  const auto with = [&](const char* weights) {
    Words words = seedlings;
    words.insert(words.end(), {"--weights", weights});
    return resolve(words, DataKind::photos).weights;
  };
  EXPECT_EQ(with("none"), "");
  EXPECT_EQ(with("other.safetensors"), "other.safetensors");
}

// The published schedule has 1000 epochs, and an option for the epochs after 600.
TEST(NamedRecipe, AShorterRunDropsWhatNeverBegins) {
  const Words words = {"--recipe", "seedlings_resnet50_as_published", "--epochs", "2"};
  Options o = resolve(words, DataKind::photos);
  EXPECT_EQ(o.lr_after.value().text, "600:1e-6");
  check_schedule(o);
  EXPECT_FALSE(o.lr_after);
}

TEST(NamedRecipe, MistakesAreOneLine) {
  expect_refused({"--recipe", "flowers_vit_tyni"},
                 "unknown recipe 'flowers_vit_tyni' (did you mean flowers_vit_tiny?); available: "
                 "cifar10_resnet34, ");
  expect_refused({"--recipe", "my.json"}, "unknown recipe 'my.json': no such file; available: ");
  expect_refused({"vit_large", "--recipe", "flowers_vit_tiny"},
                 "--recipe flowers_vit_tiny trains vit_tiny, not vit_large; leave MODEL out");
  expect_refused({"flowers_vit_tiny"},
                 "flowers_vit_tiny is a recipe: ./launcher --recipe flowers_vit_tiny");
  const TemporaryFolder folder;
  write_text(folder / "c.json", R"({"recipe": "flowers_vit_tiny"})");
  expect_refused({"vit_tiny", "--config", folder / "c.json"}, "'recipe' can't be part of a config");
}

TEST(NamedRecipe, IsTakenFromAnyPath) {
  const TemporaryFolder folder;
  const std::string file = folder / "my.json";
  write_text(file, contents(models_folder() / "recipes/flowers_vit_tiny.json"));
  const Options mine = resolve({"--recipe", file}, DataKind::photos),
                shipped = resolve({"--recipe", "flowers_vit_tiny"}, DataKind::photos);
  EXPECT_EQ(mine.recipe, file);
  EXPECT_EQ(config_to_json(mine), config_to_json(shipped));
  EXPECT_EQ(resolve({"--recipe", file, "--lr", "3"}, DataKind::photos).lr, 3);
  expect_refused({"vit_large", "--recipe", file}, "my.json trains vit_tiny, not vit_large");
  expect_refused({"vit_tiny", "--config", file},
                 "my.json: has a description, as recipes have: give it as --recipe " + file);
  write_text(file, config_to_json(shipped));
  expect_refused({"--recipe", file}, "my.json: 'description' is missing; --config takes files of");
}

TEST(NamedRecipe, MistakesInTheFileAreOneLine) {
  expect_bad_file(R"("lrr": 1)", "r.json: unknown key 'lrr' (did you mean lr?)");
  // The published set-ups had the key in this object, where it was never read.
  expect_bad_file(R"("CONFIG": {"precision": "fp16"})",
                  "r.json: 'CONFIG' is an object, whose options are not read; move them out");
  expect_bad_file(R"("fp16": {"mode": "torch"})", "r.json: 'fp16' is an object");
  expect_bad_file(R"("data": "photos")", "r.json: 'data' can't be part of a recipe");
  expect_bad_file(R"("seed": 1)", "'seed' can't be part of a recipe");
  expect_bad_file(R"("lr": "much")", "r.json: 'lr' much: must be a number");
  expect_bad_file(R"("// lr": 1)", "r.json: '// lr' must be text in quotes");
  EXPECT_TRUE(is_line(error_of([] { parse_recipe(R"({"model": "x"})", "r.json", "r"); }),
                      "r.json: 'description' is missing"));
}

TEST(NamedRecipe, CommentsHoldForWhatFollows) {
  const NamedRecipe recipe = parse_recipe(
      R"({"description": "d", "model": "m", "//": "whole", "// a": "one", "lr": 1, "batch": 2,
          "// b": "two", "epochs": 3, "// c": "none"})",
      "r.json", "r");
  EXPECT_EQ(recipe.origin, "whole");
  ASSERT_EQ(recipe.parts.size(), 3u);
  EXPECT_EQ(recipe.parts[0].comment, "one");
  EXPECT_EQ(recipe.parts[0].options, (Words{"lr", "batch"}));
  EXPECT_EQ(recipe.parts[1].options, Words{"epochs"});
  EXPECT_EQ(recipe.parts[2].options, Words{});
  EXPECT_EQ(recipe.values.at("epochs"), Items{"3"});
}

}  // namespace
}  // namespace bv::test
