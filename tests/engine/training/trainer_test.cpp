// Updates, accumulation, initial values.
#include "engine/training/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/augment/mixing.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

TrainerOptions options(OptimizerKind kind, int accumulate) {
  return {.optimizer = numbers_of(kind),
          .local_batch = small_batch,
          .height = small_size,
          .width = small_size,
          .accumulate = accumulate,
          .sync = {.bucket_bytes = 1 << 20}};
}

struct Rig {
  std::unique_ptr<Backend> backend = make_cpu_backend(2, false);
  Graph vit;
  Trainer trainer;

  explicit Rig(const TrainerOptions& o, GraphOptions rates = {}, int depth = 2)
      : vit(small_vit(depth, rates)), trainer(*backend, nullptr, vit, o) {
    trainer.allocate();
    trainer.parameters().initialise(3);
  }
  UpdateResult update(std::initializer_list<uint32_t> micro_batches, double lr,
                      int count = small_batch) {
    size_t done = 0;
    for (const uint32_t number : micro_batches) {
      SmallBatch b(number);
      for (int i = count; i < small_batch; ++i) b.labels[static_cast<size_t>(i)] = -1;
      trainer.step().micro_step({.images = b.images.data(),
                                 .crops = b.crops.data(),
                                 .labels = b.labels.data(),
                                 .height = small_size,
                                 .width = small_size,
                                 .count = count,
                                 .position = 0,
                                 .wait_seconds = 0},
                                {.epoch = 0,
                                 .first = done == 0,
                                 .last = done + 1 == micro_batches.size(),
                                 .stop = false});
      ++done;
    }
    trainer.step().start_update(lr, static_cast<int64_t>(micro_batches.size()) * count);
    return trainer.step().finish_update();
  }
};

// Weights after one update, then the sums of an evaluation of `evaluated`.
struct Result {
  std::vector<float> weights;
  EvaluationSums sums;
};
Result train_and_evaluate(const InputShape& input, int layers, const Batch& batch,
                          const Batch& evaluated) {
  const auto backend = make_cpu_backend(2, false);
  const Graph vit =
      build_vit({.embed_dim = 24, .depth = 1, .heads = 3},
                {.classes = small_classes, .augment_layers = layers}, input, DType::fp32);
  TrainerOptions o = options(OptimizerKind::sgd, 1);
  o.augment_layers = layers;
  o.mixing = batch.mixes != nullptr;
  o.local_batch = input.B;
  Trainer trainer(*backend, nullptr, vit, o);
  trainer.allocate();
  trainer.parameters().initialise(3);
  trainer.step().micro_step(batch, {.epoch = 0, .first = true, .last = true, .stop = false});
  trainer.step().start_update(0.1, batch.count);
  trainer.step().finish_update();
  trainer.begin_evaluation();
  trainer.evaluate(evaluated);
  const float* weights = trainer.parameters().weights();
  return {{weights, weights + vit.arena_count()}, trainer.end_evaluation()};
}

Batch batch_of(const SmallBatch& b, int side = small_size) {
  return {.images = b.images.data(),
          .crops = b.crops.data(),
          .ops = nullptr,
          .mixes = nullptr,
          .labels = b.labels.data(),
          .height = side,
          .width = side,
          .count = small_batch,
          .position = 0,
          .wait_seconds = 0};
}

TEST(Trainer, TrainsOnAugmentedImagesAndEvaluatesPlainOnes) {
  constexpr int layers = 3;
  SmallBatch given(1), other(2);
  given.crops = {{1, -2, 1, 0}, {0, 0, 0, 1}, {-3, 2, 0, 0}};
  const ImageOp ops[small_batch * layers] = {{ImageOpKind::invert},
                                             {ImageOpKind::sharpness, {}, {100000}},
                                             {},
                                             {ImageOpKind::equalize},
                                             {ImageOpKind::posterize, {}, {0xF0}},
                                             {ImageOpKind::erase, {9, 8, 7}, {1, 2, 3, 4}},
                                             {},
                                             {ImageOpKind::hue, {}, {30}},
                                             {}};
  // The same images, augmented beforehand.
  SmallBatch made = given;
  const auto backend = make_cpu_backend(2, false);
  std::vector<uint8_t> images = given.images;
  for (int layer = 0; layer < layers; ++layer) {
    backend->kernels().run(
        AugmentImages{.out = made.images.data(),
                      .images = images.data(),
                      .crops = layer == 0 ? given.crops.data() : nullptr,
                      .ops = ops,
                      .shape = {small_batch, small_size, small_size, small_size, layer, layers}},
        nullptr);
    images = made.images;
  }
  made.crops = std::vector<Crop>(small_batch);
  EXPECT_NE(made.images, given.images);

  const InputShape input = square_input(small_batch, small_size, small_patch);
  Batch batch = batch_of(given);
  batch.ops = ops;
  const Result with = train_and_evaluate(input, layers, batch, batch_of(other));
  const Result by_hand = train_and_evaluate(input, 0, batch_of(made), batch_of(other));
  const Result plain = train_and_evaluate(input, 0, batch_of(given), batch_of(other));
  EXPECT_EQ(with.weights, by_hand.weights);
  EXPECT_EQ(with.sums.loss, by_hand.sums.loss);
  EXPECT_NE(with.weights, plain.weights);
}

// Only training images may be stored smaller than the model's input; evaluation images may not.
TEST(Trainer, TrainsOnSmallImagesInABlackFrame) {
  constexpr int side = 8;
  SmallBatch whole(1), part(2), framed(3);
  for (Crop& crop : part.crops) crop = {-1, -3};
  std::fill(framed.images.begin(), framed.images.end(), 0);
  for (int b = 0; b < small_batch; ++b)
    for (int y = 0; y < side; ++y)
      std::copy_n(&part.images[size_t((b * side + y) * side * 3)], 3 * side,
                  &framed.images[size_t(((b * small_size + y + 1) * small_size + 3) * 3)]);
  framed.labels = part.labels;
  const InputShape input = square_input(small_batch, small_size, small_patch);
  InputShape small = input;
  small.height = small.width = side;
  for (const int layers : {0, 1}) {
    const ImageOp ops[small_batch] = {};
    Batch of_part = batch_of(part, side), of_framed = batch_of(framed);
    of_part.ops = of_framed.ops = layers > 0 ? ops : nullptr;
    const Result one = train_and_evaluate(small, layers, of_part, batch_of(whole));
    const Result other = train_and_evaluate(input, layers, of_framed, batch_of(whole));
    EXPECT_EQ(one.weights, other.weights);
    EXPECT_EQ(one.sums.loss, other.sums.loss);
  }
}

// Four images, two of each label.
struct Pairs {
  static constexpr int count = 4;
  std::vector<uint8_t> images;
  std::vector<Crop> crops = {{1, -2, 1, 0}, {0, 0, 0, 1}, {-3, 2, 0, 0}, {}};
  std::vector<int32_t> labels = {1, 1, 3, 3};
  size_t bytes() const { return images.size() / count; }

  Pairs() {
    for (uint32_t i = 0; i < count * small_size * small_size * 3; ++i)
      images.push_back(static_cast<uint8_t>(philox(7, i, 9, 0, random_data).at[0]));
  }
  Batch batch(const Mix* mixes = nullptr) const {
    return {.images = images.data(),
            .crops = crops.data(),
            .ops = nullptr,
            .mixes = mixes,
            .labels = labels.data(),
            .height = small_size,
            .width = small_size,
            .count = count,
            .position = 0,
            .wait_seconds = 0};
  }
  // The same labels with these pictures, which are cropped already.
  Pairs with(const std::vector<uint8_t>& pictures) const {
    Pairs other = *this;
    other.images = pictures;
    other.crops = std::vector<Crop>(count);
    return other;
  }
  std::vector<uint8_t> cropped() const {
    std::vector<uint8_t> out(images.size());
    const ImageOp none[count] = {};
    make_cpu_backend(2, false)->kernels().run(
        AugmentImages{.out = out.data(),
                      .images = images.data(),
                      .crops = crops.data(),
                      .ops = none,
                      .shape = {count, small_size, small_size, small_size, 0, 1}},
        nullptr);
    return out;
  }
};

TEST(Trainer, TrainsOnMixedPairsAndEvaluatesPlainImages) {
  const Pairs given;
  const Mix mixes[] = {{0.25f}, {0.5f, 2, 3, 8, 9}, {0.75f, -1, 0, 12, 2}, {1}};
  const std::vector<uint8_t> plain = given.cropped();
  std::vector<uint8_t> mixed(plain.size());
  for (size_t b = 0; b < Pairs::count; ++b)
    mix_pictures(&mixed[b * given.bytes()], &plain[b * given.bytes()],
                 &plain[(b ^ 1) * given.bytes()], mixes[b], small_size);
  EXPECT_NE(mixed, plain);
  const InputShape input = square_input(Pairs::count, small_size, small_patch);
  const Batch other = given.batch();
  // Both images of a pair have the same label, so the parts of a mixed target add up to 1.
  const Result with = train_and_evaluate(input, 0, given.batch(mixes), other);
  const Result by_hand = train_and_evaluate(input, 0, given.with(mixed).batch(), other);
  EXPECT_EQ(with.weights, by_hand.weights);
  EXPECT_EQ(with.sums.loss, by_hand.sums.loss);
  // The same after augmentation.
  const ImageOp ops[Pairs::count] = {};
  Batch augmented = given.batch(mixes);
  augmented.ops = ops;
  EXPECT_EQ(train_and_evaluate(input, 1, augmented, other).weights, by_hand.weights);
}

// With a box of the whole image, each image becomes its partner, and its label the partner's.
TEST(Trainer, MixedTargetsFollowTheImages) {
  Pairs given;
  given.labels = {1, 0, 3, 2};
  const Mix whole{.lambda = 0, .bottom = small_size, .right = small_size};
  const Mix mixes[] = {whole, whole, {1}, {1}};
  const std::vector<uint8_t> plain = given.cropped();
  std::vector<uint8_t> swapped = plain;
  const auto bytes = static_cast<ptrdiff_t>(given.bytes());
  std::rotate(swapped.begin(), swapped.begin() + bytes, swapped.begin() + 2 * bytes);
  Pairs by_hand = given.with(swapped);
  std::swap(by_hand.labels[0], by_hand.labels[1]);
  const InputShape input = square_input(Pairs::count, small_size, small_patch);
  const Batch other = given.batch();
  EXPECT_EQ(train_and_evaluate(input, 0, given.batch(mixes), other).weights,
            train_and_evaluate(input, 0, by_hand.batch(), other).weights);
}

TEST(Trainer, CountsTheTrainingImagesThatItHasRight) {
  Rig rig(options(OptimizerKind::sgd, 2));
  for (int i = 0; i < 5; ++i) rig.update({0, 1}, .1);
  const UpdateResult result = rig.update({0, 1}, 0);
  rig.trainer.begin_evaluation();
  for (const uint32_t number : {0u, 1u}) {
    const SmallBatch b(number);
    rig.trainer.evaluate(batch_of(b));
  }
  const EvaluationSums sums = rig.trainer.end_evaluation();
  EXPECT_EQ(result.top1, sums.top1);
  EXPECT_GT(result.top1, 0);
  EXPECT_LT(result.top1, result.count);
}

TEST(Trainer, OverfitsOneBatch) {
  Rig rig(options(OptimizerKind::adamw, 1));
  const UpdateResult first = rig.update({0}, 3e-3);
  UpdateResult last;
  for (int i = 0; i < 100; ++i) last = rig.update({0}, 3e-3);
  EXPECT_GT(first.loss_sum / first.count, 1);
  EXPECT_LT(last.loss_sum / last.count, .02);
  EXPECT_EQ(rig.trainer.state().count, 101);
}

TEST(Trainer, RecomputedBlocksGiveTheSameBits) {
  const GraphOptions rates{.drop_rate = .1f,
                           .pos_drop_rate = .1f,
                           .proj_drop_rate = .2f,
                           .attn_drop_rate = .2f,
                           .drop_path_rate = .3f};
  TrainerOptions o = options(OptimizerKind::adamw, 2);
  Rig kept(o, rates, 4);
  o.recompute = true;
  Rig recomputed(o, rates, 4);
  EXPECT_LT(recomputed.trainer.plan().activations, kept.trainer.plan().activations / 2);
  for (uint32_t i = 0; i < 3; ++i) {
    const UpdateResult a = kept.update({i, i + 1}, 1e-2), b = recomputed.update({i, i + 1}, 1e-2);
    EXPECT_EQ(a.loss_sum, b.loss_sum);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  const auto want = kept.trainer.parameters().get_weights();
  for (const auto& [name, tensor] : recomputed.trainer.parameters().get_weights())
    EXPECT_EQ(tensor.data, want.at(name).data) << name;
}

// An update of a single micro-step is the same with --accumulate 4 as with --accumulate 1.
TEST(Trainer, IncompleteGroupIsWeightedByItsTrueCount) {
  Rig full(options(OptimizerKind::sgd, 1)), part(options(OptimizerKind::sgd, 4));
  const UpdateResult a = full.update({1}, .1), b = part.update({1}, .1);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * a.grad_norm);
  EXPECT_EQ(a.count, b.count);
  const auto want = full.trainer.parameters().get_weights(),
             got = part.trainer.parameters().get_weights();
  for (const auto& [name, tensor] : want)
    for (size_t i = 0; i < tensor.data.size(); ++i)
      ASSERT_NEAR(tensor.data[i], got.at(name).data[i], 1e-6) << name;
}

TEST(Trainer, AccumulationIsTheMeanOverAllImages) {
  Rig two(options(OptimizerKind::sgd, 2)), a(options(OptimizerKind::sgd, 1)),
      b(options(OptimizerKind::sgd, 1));
  const auto start = a.trainer.parameters().get_weights();
  two.update({1, 2}, .1);
  a.update({1}, .1);
  b.update({2}, .1);
  const auto got = two.trainer.parameters().get_weights();
  const auto wa = a.trainer.parameters().get_weights(), wb = b.trainer.parameters().get_weights();
  for (const auto& [name, w0] : start)
    for (size_t i = 0; i < w0.data.size(); ++i)
      ASSERT_NEAR(got.at(name).data[i], (wa.at(name).data[i] + wb.at(name).data[i]) / 2, 1e-6)
          << name;
}

TEST(Trainer, NotFiniteGradientChangesNothing) {
  Rig rig(options(OptimizerKind::adamw, 1));
  rig.update({0}, 1e-3);
  auto weights = rig.trainer.parameters().get_weights();
  weights.at("head.bias").data[0] = std::numeric_limits<float>::infinity();
  rig.trainer.parameters().set_weights(weights);
  const auto moments = rig.trainer.parameters().get_moments();
  EXPECT_TRUE(rig.update({1}, 1e-3).skipped);
  EXPECT_EQ(rig.trainer.state().count, 1);
  EXPECT_NE(rig.trainer.first_not_finite(), "");
  for (const auto& [name, tensor] : rig.trainer.parameters().get_weights())
    EXPECT_EQ(tensor.data, weights.at(name).data) << name;
  for (const auto& [name, tensor] : rig.trainer.parameters().get_moments())
    EXPECT_EQ(tensor.data, moments.at(name).data) << name;
}

TEST(Trainer, EvaluationDropsNothingAndCountsEachImageOnce) {
  const GraphOptions rates{.drop_rate = .5f,
                           .pos_drop_rate = .5f,
                           .proj_drop_rate = .5f,
                           .attn_drop_rate = .5f,
                           .drop_path_rate = .5f};
  Rig with(options(OptimizerKind::sgd, 1), rates), without(options(OptimizerKind::sgd, 1));
  EvaluationSums sums[2];
  for (Rig* rig : {&with, &without}) {
    SmallBatch b(4);
    b.labels[2] = -1;  // an unused row
    rig->trainer.begin_evaluation();
    for (int i = 0; i < 2; ++i)
      rig->trainer.evaluate({.images = b.images.data(),
                             .crops = b.crops.data(),
                             .labels = b.labels.data(),
                             .height = small_size,
                             .width = small_size,
                             .count = 2,
                             .position = 0,
                             .wait_seconds = 0});
    sums[rig == &without] = rig->trainer.end_evaluation();
  }
  EXPECT_EQ(sums[0].count, 4);
  EXPECT_EQ(sums[0].loss, sums[1].loss);
  EXPECT_EQ(sums[0].top5, 4);  // of 5 classes
}

TEST(Parameters, StartAsTimmsDo) {
  Rig rig(options(OptimizerKind::sgd, 1));
  const auto weights = rig.trainer.parameters().get_weights();
  const auto deviation = [&](const std::string& name) {
    double squares = 0;
    for (const float x : weights.at(name).data) squares += double(x) * x;
    return std::sqrt(squares / static_cast<double>(weights.at(name).data.size()));
  };
  EXPECT_NEAR(deviation("blocks.0.attn.qkv.weight"), .02, .001);
  EXPECT_NEAR(deviation("pos_embed"), .02, .003);
  EXPECT_NEAR(deviation("cls_token"), 1e-6, 5e-7);
  const double bound = 1 / std::sqrt(48.0);  // of 3 x 4 x 4 inputs
  EXPECT_NEAR(deviation("patch_embed.proj.weight"), bound / std::sqrt(3.0), .1 * bound);
  EXPECT_EQ(deviation("blocks.1.mlp.fc1.bias"), 0);
  EXPECT_EQ(deviation("norm.weight"), 1);
}

TEST(Parameters, DecayLeavesOutVectorsAndTokens) {
  const Graph vit = small_vit(1);
  const auto flags = decay_flags(vit, false), all = decay_flags(vit, true);
  for (const ParameterInfo& p : vit.parameters()) {
    const size_t chunk = p.offset / OptimizerUpdate::decay_chunk;
    const bool decays = p.shape.size() > 1 && p.name != "pos_embed" && p.name != "cls_token";
    EXPECT_EQ(flags[chunk], decays) << p.name;
    EXPECT_EQ(all[chunk], 1) << p.name;
  }
}

}  // namespace
}  // namespace bv::test
