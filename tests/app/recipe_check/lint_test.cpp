// lint(): for each check, a set-up that it reports and one that it passes; the published set-ups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/recipe_check/recipe_check.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/training/schedule.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;
using Channels = std::array<double, 3>;

struct Images {
  DataKind kind = DataKind::photos;
  int64_t train = 2939;
  int side = 320;
  Channels mean = {.46, .42, .3}, deviation = {.3, .27, .29};
};
const Images flowers,
    cifar10 = {DataKind::cifar, 50000, 32, {.491, .482, .447}, {.202, .199, .201}},
    seedlings = {DataKind::photos, 3877, 224, {.33, .29, .21}, {.09, .1, .11}};

// The same picture repeated, with pixels alternately above and below the mean.
class Pictures final : public Dataset {
 public:
  explicit Pictures(const Images& images) : count_(images.train) {
    const int side = images.side;
    picture_ = black_image(side, side);
    for (size_t i = 0; i < picture_.pixels.size(); ++i) {
      const size_t c = i % 3;
      const double value = images.mean[c] + ((i / 3) % 2 ? 1 : -1) * images.deviation[c];
      picture_.pixels[i] = static_cast<uint8_t>(std::lround(255 * value));
    }
  }
  int64_t size() const override { return count_; }
  int label(int64_t) const override { return 0; }
  Image image(int64_t, int) const override { return picture_; }
  std::string name(int64_t) const override { return "picture"; }

 private:
  int64_t count_;
  Image picture_;
};

// The set-up that prepare() makes of a command line on a device that computes in fp32.
Setup setup_of(const Words& words, const Images& images) {
  const Request request = read_request(parse_command_line(words));
  Setup s;
  s.model = request.model;
  Options& o = s.options = resolve_options(request, s.model, images.kind);
  s.requested = o;
  check_schedule(o);
  o.device = DeviceKind::cpu, o.precision = DType::fp32;
  o.batch = std::min<int64_t>(o.batch.value_or(64), images.train);
  if (!o.mean) o.mean = s.model.mean;
  if (!o.std) o.std = s.model.std;
  s.data.kind = images.kind;
  s.data.train = std::make_unique<Pictures>(images);
  return s;
}

Words lines_of(const Words& words, const Images& images = flowers) {
  const auto s = setup_of(words, images);
  Words lines;
  for (const Finding& f : lint(s, sample_images(s, 1))) lines.push_back(line_of(f));
  return lines;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const Words vit = {"vit_tiny"};

void expect_line(const Words& words, const std::string& line, const Images& images = flowers) {
  EXPECT_EQ(lines_of(words, images), Words{line});
}
void expect_none(const Words& words, const Images& images = flowers) {
  EXPECT_EQ(lines_of(words, images), Words{});
}

TEST(Lint, SaysNothingOfDefaults) {
  for (const std::string& model : known_models()) {
    expect_none({model});
    expect_none({model}, cifar10);
    expect_none({model}, {DataKind::builtin, 2048, 64});
    expect_none({model}, {DataKind::synthetic, 64, 224});
  }
  expect_none(with(vit, {"--augment", "strong"}));
}

TEST(Lint, TooFewUpdates) {
  expect_line(with(vit, {"--epochs", "40"}),
              "warning: only 80 updates (2 per epoch): too few to train well; use --batch 16",
              {.train = 128});
  expect_line(with(vit, {"--epochs", "2"}),
              "warning: only 90 updates (45 per epoch): too few to train well; use --epochs 3, "
              "or a smaller --batch");
  expect_line(with(vit, {"--accumulate", "15", "--epochs", "100"}),
              "warning: only 300 updates (3 per epoch): too few to train well; use --accumulate 1");
  expect_none(with(vit, {"--accumulate", "9", "--epochs", "20"}));
  expect_none(with(vit, {"--steps", "5"}));  // a trial
  expect_none(vit, {DataKind::builtin, 800, 64});
}

TEST(Lint, ImagesThatSitOut) {
  const Words wide = with(vit, {"--batch", "400"});
  expect_line(wide,
              "warning: 339 of 1939 images are left out of each epoch, different ones each time: "
              "only full batches of 400 are used; use --batch 242",
              {.train = 1939});
  expect_none(with(wide, {"--left-over", "next"}), {.train = 1939});
  // One advice, not two: with fewer images a batch, more of them are used, too.
  expect_line(vit, "warning: only 30 updates (1 per epoch): too few to train well; use --batch 8",
              {.train = 100});
  expect_none(vit, {.train = 4 * 64 + 28});  // a tenth
}

TEST(Lint, BatchesThatAccumulationLeavesOver) {
  const Words lines = lines_of(with(vit, {"--accumulate", "16", "--epochs", "100"}));
  ASSERT_EQ(lines.size(), 2u);  // the first warns of few updates
  EXPECT_EQ(
      lines[1],
      "warning: the last update of an epoch has 13 batches, the others 16: 45 batches are not "
      "divisible by --accumulate; use --accumulate 15");
  expect_none(with(vit, {"--accumulate", "10", "--epochs", "100"}));  // 5 left over
}

TEST(Lint, RatesBeyondTheLinearRule) {
  expect_line(with(vit, {"--batch", "8"}),
              "warning: lr 0.0005 is 8 times what suits updates of 8 images: vit_tiny trains well "
              "at 0.0005 with 64, and the rate scales with the images; use --lr 6.25e-05");
  expect_line(
      {"resnet34", "--lr", ".5"},
      "warning: lr 0.5 is 5 times what suits updates of 256 images: resnet34 trains well at "
      "0.1 with 256, and the rate scales with the images; use --lr 0.1",
      cifar10);
  expect_none({"resnet34", "--lr", ".4"}, cifar10);
  expect_none(with(vit, {"--batch", "8", "--accumulate", "8"}));
  expect_none(vit, {.train = 12 * 64});
  expect_none(with(vit, {"--optimizer", "sgd", "--lr", ".01", "--batch", "8"}));
}

TEST(Lint, SgdAtAResNetsRateForAViT) {
  const Words sgd = with(vit, {"--optimizer", "sgd", "--batch", "128", "--clip-grad", "0", "--lr"});
  expect_line(with(sgd, {".1"}),
              "warning: sgd with lr 0.1 hardly trains a ViT: a rate for ResNets; attention's "
              "gradients need a lower one, or a limit to their norm; use --optimizer adamw with "
              "its own --lr, --clip-grad 1, or --lr 0.01");
  expect_none(with(sgd, {".04"}));
  expect_none({"vit_tiny", "--optimizer", "sgd", "--lr", ".1", "--clip-grad", "1"});
  expect_line({"vit_tiny", "--optimizer", "sgd", "--lr", ".5"},
              "warning: sgd with lr 0.5 hardly trains a ViT: a rate for ResNets; attention's "
              "gradients need a lower one; use --optimizer adamw with its own --lr, or --lr 0.01");
  expect_none({"resnet34", "--lr", ".1"}, cifar10);
}

TEST(Lint, AWarmUpLongerThanTheRun) {
  expect_line(with(vit, {"--warmup-epochs", "40"}),
              "warning: the warm-up lasts longer than the run: lr reaches 0.000375, not 0.0005; "
              "use a smaller --warmup-epochs or more --epochs");
  expect_line(with(vit, {"--warmup-epochs", "30"}),
              "warning: the warm-up lasts 1350 of 1350 updates: lr is near 0.0005 for a short time "
              "only; use --warmup-epochs 6");
  expect_line(with(vit, {"--epochs", "3"}),
              "warning: the warm-up lasts 90 of 135 updates: lr is near 0.0005 for a short time "
              "only; use --warmup-epochs 0.6");
  expect_none(with(vit, {"--warmup-epochs", "15"}));
  expect_line(with(vit, {"--warmup-steps", "1351"}),
              "warning: the warm-up lasts longer than the run: lr reaches 0.0005, not 0.0005; use "
              "a smaller --warmup-steps or more --epochs");
  expect_line(with(vit, {"--warmup-steps", "1350"}),  // 30 epochs of 45
              "warning: the warm-up lasts 1350 of 1350 updates: lr is near 0.0005 for a short time "
              "only; use --warmup-steps 270");
  expect_none(with(vit, {"--steps", "5"}));  // a short look at a long schedule
  expect_line(
      with(vit, {"--steps", "5", "--warmup-steps", "20"}),
      "warning: the warm-up lasts longer than the run: lr reaches 0.000125, not 0.0005; use "
      "a smaller --warmup-steps or more --steps");
  expect_none(with(vit, {"--steps", "20", "--warmup-steps", "20"}));
}

TEST(Lint, BatchNormOfOneImage) {
  const auto lines = [](const Words& words, int replicas, int local, int micro_batches = 1) {
    auto s = setup_of(words, {DataKind::builtin, 2048, 64});
    s.replicas = replicas;
    s.options.local_batch = local, s.options.micro_batches = micro_batches;
    Words all;
    for (const Finding& f : lint(s, {})) all.push_back(line_of(f));
    return join(all, "\n");
  };
  const std::string begin = "warning: batch norm computes its statistics from one image: ";
  const Words resnet = {"resnet34"}, synchronised = {"resnet34", "--sync-bn"};
  EXPECT_EQ(lines(resnet, 1, 1), begin + "a batch has one; use --local-batch 2 or more");
  EXPECT_EQ(lines(resnet, 4, 1),
            begin + "each process has one; use --local-batch 2 or more, or --sync-bn");
  EXPECT_EQ(lines(resnet, 1, 4, 4), begin + "a micro-batch has one; use fewer --micro-batches");
  EXPECT_EQ(lines(synchronised, 1, 1), begin + "a batch has one; use --local-batch 2 or more");
  EXPECT_EQ(lines(synchronised, 4, 1), "");
  EXPECT_EQ(lines(resnet, 4, 2), "");
  EXPECT_EQ(lines(resnet, 1, 8, 4), "");
  EXPECT_EQ(lines(vit, 4, 1), "");
}

TEST(Lint, OddBatchesOfPairs) {
  const auto lines = [](int batch, const char* mixup) {
    auto s = setup_of(with(vit, {"--mixup", mixup}), flowers);
    s.requested.batch = batch;  // as a recipe may set it
    Words all;
    for (const Finding& f : lint(s, {})) all.push_back(line_of(f));
    return all;
  };
  EXPECT_EQ(lines(65, "0.2"),
            Words{"warning: batch 65 is odd: images are mixed in pairs, so it has "
                  "become 64; use an even --batch"});
  EXPECT_EQ(lines(64, "0.2"), Words{});
  EXPECT_EQ(lines(65, "0"), Words{});
}

TEST(Lint, RatesThatRiseAgain) {
  expect_line(
      with(vit, {"--period-epochs", "10"}),
      "warning: the learning rate rises again from epoch 10: --period-epochs 10 is half a wave "
      "of 20, the curve continues until epoch 30; use --period-epochs 30");
  expect_none(with(vit, {"--period-epochs", "28"}));  // after 2 epochs of warm-up
  expect_none(vit);
  expect_none(
      with(vit, {"--period-epochs", "20", "--lr-after", "22:1e-4", "--warmup-epochs", "2"}));
}

TEST(Lint, SchedulesThatEndLongBeforeTheRunOrAfterIt) {
  expect_line(with(vit, {"--lr-after", "20:1e-6"}),
              "warning: the schedule ends with epoch 20 of 30: the rest has a rate of 1e-06, the "
              "peak is 0.0005; use a later --lr-after, or --epochs 21");
  expect_none(with(vit, {"--lr-after", "25:1e-6"}));
  expect_none(with(vit, {"--lr-after", "20:1e-4"}));
  expect_none(with(vit, {"--period-epochs", "30", "--warmup-epochs", "0"}));
  expect_line(
      with(vit, {"--period-epochs", "50"}),
      "warning: the cosine is cut off before it has fallen: --period-epochs 50 is longer than "
      "its 30 epochs; use --period-epochs 30");
}

TEST(Lint, DecaysThatNeverCome) {
  expect_line(with(vit, {"--schedule", "multistep", "--decay-milestones", "10,40"}),
              "warning: the decay at epoch 40 is never reached: the run ends with epoch 30; use "
              "earlier --decay-milestones");
  expect_line(
      with(vit,
           {"--schedule", "multistep", "--decay-milestones", "10,28", "--lr-after", "25:1e-6"}),
      "warning: the decay at epoch 28 is never reached: --lr-after holds after epoch 25; use "
      "earlier --decay-milestones");
  expect_none(with(vit, {"--schedule", "multistep", "--decay-milestones", "10,20"}));
  expect_line(with(vit, {"--schedule", "step", "--decay-epochs", "30"}),
              "warning: the learning rate never decays: --decay-epochs 30, and the run ends with "
              "epoch 30; use a smaller --decay-epochs");
  expect_none(with(vit, {"--schedule", "step", "--decay-epochs", "10"}));
}

TEST(Lint, PixelsNormalisedByOtherImagesNumbers) {
  const Words numbers = {"vit_tiny", "--mean", ".518,.525,.495", "--std", ".242,.243,.253"};
  expect_line(numbers,
              "warning: pixels are normalised by the mean 0.518,0.525,0.495 and deviation "
              "0.242,0.243,0.253 of other images: of 256 images here they are 0.329,0.288,0.21 and "
              "0.09,0.1,0.112; use the --mean and --std that ./launcher data stats prints",
              {.mean = {.33, .29, .21}, .deviation = {.09, .1, .11}});
  EXPECT_EQ(lines_of(numbers, {.mean = {.51, .52, .5}, .deviation = {.1, .1, .1}}).size(), 1u);
  expect_none(numbers, {.mean = {.46, .48, .42}, .deviation = {.3, .3, .3}});
  // The model's own values are not checked.
  expect_none(vit, {.mean = {.1, .1, .1}, .deviation = {.05, .05, .05}});
}

TEST(Lint, ObjectsOfAnotherSizeInEvaluation) {
  const auto framed = [](const char* size) {
    return Words{"vit_tiny", "--train-crop", "pad-if-needed", "--image-size", size, "--patch-size",
                 "16"};
  };
  expect_line(framed("224"),
              "warning: objects are 7 times as large in evaluation as in training: --train-crop "
              "pad-if-needed, --crop-mode center, images of 32 pixels; use --crop-mode pad",
              cifar10);
  expect_none(with(framed("224"), {"--crop-mode", "pad"}), cifar10);
  expect_none(framed("64"), cifar10);  // twice as large
  expect_line(with(vit, {"--scale", ".05,.05"}),
              "warning: objects are 4.5 times as large in training as in evaluation: --train-crop "
              "random-resized, --crop-mode center; use another --scale or --crop-pct");
  expect_none(with(vit, {"--scale", ".25,.25"}));
}

TEST(Lint, ImagesLeftOutByTheirNames) {
  auto s = setup_of(vit, flowers);
  EXPECT_TRUE(lint(s, {}).empty());
  s.data.left_out = "9 .heic", s.data.left_out_advice = "mogrify -format jpg *.heic";
  const std::vector<Finding> findings = lint(s, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(line_of(findings[0]).starts_with("warning: images are left out: 9 .heic: JPEG, "));
  EXPECT_TRUE(line_of(findings[0]).ends_with("; use mogrify -format jpg *.heic"));
}

TEST(Lint, ImagesOfFewPatches) {
  expect_line(with(vit, {"--image-size", "32", "--patch-size", "16"}),
              "warning: an image of 32x32 pixels is only 4 patches of 16: attention has too few to "
              "compare; use --patch-size 8 or --image-size 64");
  // Whatever the images are.
  for (const DataKind kind : {DataKind::builtin, DataKind::synthetic})
    expect_line(with(vit, {"--image-size", "16", "--patch-size", "16"}),
                "warning: an image of 16x16 pixels is only 1 patch of 16: attention has too few to "
                "compare; use --patch-size 4 or --image-size 64",
                {kind, 2048, 16});
  expect_none(with(vit, {"--image-size", "64", "--patch-size", "16"}));
  expect_none({"resnet34", "--image-size", "32"});
}

TEST(Lint, FewImagesForValidation) {
  auto s = setup_of(vit, flowers);
  s.data.classes = {"a", "b", "c", "d", "e"};
  s.data.held_out = true;
  const auto lines = [&](int64_t images) {
    s.data.val = std::make_unique<Pictures>(Images{.train = images});
    Words all;
    for (const Finding& f : lint(s, {})) all.push_back(line_of(f));
    return all;
  };
  EXPECT_EQ(lines(10), Words{"warning: only 10 images for validation, of 5 classes: each moves "
                             "top-1 by 10%; use a larger --val-fraction"});
  EXPECT_EQ(lines(30), Words{});
  EXPECT_EQ(lines(2939), Words{});
  EXPECT_EQ(lines(2940), Words{"warning: only 2939 images for training, 2940 for validation: "
                               "--val-fraction 0.1 holds most of them out; use --val-fraction 0.1 "
                               "or 0.2"});
  s.data.held_out = false;
  EXPECT_EQ(lines(2940), Words{});
  EXPECT_TRUE(lines(29).at(0).ends_with("; use more validation images"));
}

TEST(Lint, ValidationOnTrainingImages) {
  const TemporaryFolder folder;
  for (const std::string part : {"photos", "others"})
    for (const char* name : {"cat", "dog"}) {
      std::filesystem::create_directories(folder / (part + "/" + name));
      for (int i = 0; i < 160; ++i)
        write_text(folder / (part + "/" + name + "/" + std::to_string(i) + ".jpg"), "");
    }
  std::filesystem::create_directory_symlink("photos", folder / "linked");
  const auto lines = [&](const std::string& val, double val_fraction = 0.1) {
    auto s = setup_of({"vit_tiny", "--data", folder / "photos"}, flowers);
    s.options.val = val, s.options.val_fraction = val_fraction;
    s.data = open_dataset({.path = s.options.data, .val = val});
    Words all;
    for (const Finding& f : lint(s, {}))
      if (f.what.find("validation") != f.what.npos) all.push_back(line_of(f));
    return join(all, "\n");
  };
  for (const char* same : {"photos", "photos/", "linked"})
    EXPECT_EQ(lines(folder / same),
              "warning: the images for validation are training images: --val " + (folder / same) +
                  " has files of --data " + (folder / "photos") +
                  "; use other images, or leave out --val: --val-fraction then holds some out");
  EXPECT_TRUE(
      lines(folder / "photos", 0)
          .ends_with("; use other images, or leave out --val and --val-fraction 0: some are "
                     "then held out"));
  EXPECT_EQ(lines(folder / "others"), "");
  EXPECT_EQ(lines(""), "");  // held out
}

TEST(Lint, ARateOfZero) {
  expect_line(with(vit, {"--lr", "0"}),
              "warning: the learning rate is 0: no weight will change; use --lr 0.0005");
  expect_none(with(vit, {"--lr", "1e-8"}));
}

TEST(Lint, PrecisionThatIsNotInEffect) {
  expect_line(with(vit, {"--precision", "fp16"}),
              "warning: computes in fp32, not in fp16: the cpu device lacks it; use --precision "
              "fp32 or another --device");
  expect_none(with(vit, {"--precision", "fp32"}));
  for (const std::string option :
       {"--loss-scale", "--loss-scale-init", "--loss-scale-growth-interval"}) {
    const Words words = with(vit, {option, "128"});
    expect_line(words,
                "warning: " + option + " has no effect: fp32 needs no loss scale; leave it out");
    auto s = setup_of(words, flowers);
    s.options.precision = DType::fp16;
    EXPECT_TRUE(lint(s, {}).empty()) << option;
  }
}

TEST(Lint, PoliciesWhoseWindowsNeverOpen) {
  const auto policy = [](const Words& words) {
    return with({"vit_tiny", "--precision", "fp16", "--amp-policy"}, words);
  };
  const auto lines = [&](const Words& words) {
    auto s = setup_of(policy(words), flowers);
    s.options.precision = DType::fp16;  // as on a device that supports it
    Words all;
    for (const Finding& f : lint(s, {})) all.push_back(line_of(f));
    return all;
  };
  EXPECT_EQ(
      lines({"0", "--amp-start", "40", "--amp-end", "60"}),
      Words{"warning: --amp-policy 0 computes no epoch in 16 bits: its 16-bit epochs are 40 to 60, "
            "the run ends with epoch 30; use an --amp-start and --amp-end within the run"});
  EXPECT_EQ(lines({"1", "--amp-start", "5", "--amp-end", "4"}).size(), 1u);
  EXPECT_EQ(
      lines({"2"}),
      Words{"warning: --amp-policy 2 never decides anything: its first window begins with epoch "
            "1000, the run ends with epoch 30; use a smaller --amp-interval"});
  EXPECT_EQ(lines({"0", "--amp-start", "0", "--amp-end", "1000"}), Words{});
  EXPECT_EQ(lines({"1", "--amp-end", "20"}), Words{});
  EXPECT_EQ(lines({"2", "--amp-interval", "10"}), Words{});
}

// ---- the published set-ups, on sets of the published size ---------------------------------------
TEST(Lint, PassesTheCorrectedRecipes) {
  expect_none({"--recipe", "flowers_vit_tiny"});
  expect_none({"--recipe", "cifar10_resnet34"}, cifar10);
  expect_none({"--recipe", "cifar10_vit_large"}, cifar10);
  expect_none({"--recipe", "seedlings_resnet50"}, seedlings);
}

TEST(Lint, NamesTheMistakesOfThePublishedOnes) {
  const auto expect_named = [](const std::string& recipe, const Images& images,
                               const Words& beginnings) {
    const Words lines = lines_of({"--recipe", recipe + "_as_published"}, images);
    ASSERT_EQ(lines.size(), beginnings.size()) << join(lines, "\n");
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_TRUE(lines[i].starts_with("warning: " + beginnings[i])) << lines[i];
  };
  expect_named("flowers_vit_tiny", flowers,
               {"only 400 updates (2 per epoch): too few to train well; use --accumulate 1",
                "the last update of an epoch has 6 batches, the others 16: ",
                "computes in fp32, not in fp16: "});
  expect_named("cifar10_resnet34", cifar10, {"computes in fp32, not in fp16: "});
  expect_named("cifar10_vit_large", cifar10,
               {"lr 0.001 is 13.3 times what suits updates of 16 images: ",
                "objects are 7 times as large in evaluation as in training: "});
  expect_named("seedlings_resnet50", seedlings,
               {"pixels are normalised by the mean 0.518,0.525,0.495 and deviation ",
                "the learning rate rises again from epoch 20: ",
                "the schedule ends with epoch 600 of 1000: "});
}

}  // namespace
}  // namespace bv::test
