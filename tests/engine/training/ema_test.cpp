// The moving average of the weights: after updates, in evaluation, in checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/setup/device.h"
#include "engine/training/trainer.h"
#include "kernels/devices/devices.h"
#include "tests/devices.h"
#include "tests/messages.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

constexpr int batch = 4, size = 12, classes = 5;

Graph small_model(bool resnet, DType dtype) {
  const InputShape input = square_input(batch, size, 4);
  if (resnet) return small_resnet(input, dtype, classes);
  return build_vit({.embed_dim = 64, .depth = 2, .heads = 2}, {.classes = classes}, input, dtype);
}

struct Case {
  DeviceKind device = DeviceKind::cpu;
  DType dtype = DType::fp32;
  bool resnet = false;
  float ema_rate = .05f;
};
void PrintTo(const Case& c, std::ostream* stream) {
  *stream << word_of(c.device) << " " << (c.dtype == DType::fp32 ? 32 : 16) << " bits";
}

class Rig {
 public:
  explicit Rig(const Case& c)
      : backend(make_backend(c.device, {.index = 0, .threads = 2})),
        graph(small_model(c.resnet, c.dtype)),
        trainer(*backend, nullptr, graph, [&] {
          TrainerOptions o{.optimizer = numbers_of(OptimizerKind::adamw, .05f),
                           .local_batch = batch,
                           .height = size,
                           .width = size,
                           .accumulate = 1,
                           .sync = {.bucket_bytes = 1 << 16}};
          o.optimizer.ema_rate = c.ema_rate;
          return o;
        }()) {
    trainer.allocate();
    trainer.parameters().initialise(3);
  }

  void update(uint32_t number) {
    trainer.wait_for_upload();
    trainer.step().micro_step(images(number),
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.step().start_update(1e-2, batch);
    trainer.step().finish_update();
  }
  EvaluationSums evaluate(bool averaged) {
    trainer.begin_evaluation(averaged);
    for (const uint32_t number : {7, 8}) {
      trainer.wait_for_upload();
      trainer.evaluate(images(number));
    }
    return trainer.end_evaluation();
  }
  auto weights() { return trainer.parameters().get_weights(); }
  auto ema() { return trainer.parameters().get_ema(); }

  std::unique_ptr<Backend> backend;
  Graph graph;
  Trainer trainer;

 private:
  Batch images(uint32_t number) {
    const auto word = [&](uint32_t i) { return philox(7, i, number, 0, random_data).at[0]; };
    for (uint32_t i = 0; i < pixels_.size(); ++i) pixels_[i] = static_cast<uint8_t>(word(i));
    for (uint32_t b = 0; b < batch; ++b) labels_[b] = static_cast<int32_t>((number + b) % classes);
    return {.images = pixels_.data(),
            .crops = crops_.data(),
            .labels = labels_.data(),
            .count = batch,
            .position = 0,
            .wait_seconds = 0};
  }
  std::vector<uint8_t> pixels_ = std::vector<uint8_t>(batch * size * size * 3);
  std::vector<Crop> crops_ = std::vector<Crop>(batch);
  std::vector<int32_t> labels_ = std::vector<int32_t>(batch);
};

using Weights = std::map<std::string, HostTensor>;
void expect_same(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_EQ(tensor.data, b.at(name).data) << name;
}

class Ema : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const DeviceKind device = GetParam().device;
    if (const std::string why = lack_of(device); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Ema, FollowsTheWeights) {
  Rig rig(GetParam());
  Weights want = rig.weights();
  expect_same(rig.ema(), want);
  for (int t = 1; t <= 4; ++t) {
    rig.update(static_cast<uint32_t>(t));
    const double rate = std::max(.05, 9.0 / (t + 9));
    const Weights weights = rig.weights(), got = rig.ema();
    for (auto& [name, tensor] : want)
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        const double old = tensor.data[i], now = old + rate * (weights.at(name).data[i] - old);
        ASSERT_NEAR(got.at(name).data[i], now, 1e-6 * std::abs(now) + 1e-9) << name;
      }
    want = got;
  }
}

TEST_P(Ema, IsEvaluatedInPlaceOfTheWeightsAndChangesNoTraining) {
  Case without = GetParam();
  without.ema_rate = 0;
  Rig rig(GetParam()), plain(without), other(without);
  for (const uint32_t number : {1, 2, 3}) rig.update(number), plain.update(number);
  other.trainer.parameters().set_weights(rig.ema());
  const EvaluationSums average = other.evaluate(false), weights = plain.evaluate(false);
  EXPECT_NE(average.loss, weights.loss);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(rig.evaluate(true).loss, average.loss);
    EXPECT_EQ(rig.evaluate(false).loss, weights.loss);
  }
  rig.evaluate(true);
  rig.update(4), plain.update(4);
  expect_same(rig.weights(), plain.weights());
}

TEST_P(Ema, ComesBackAsItWas) {
  Rig rig(GetParam()), again(GetParam());
  rig.update(1);
  again.trainer.parameters().set_weights(rig.weights());
  again.trainer.parameters().set_moments(rig.trainer.parameters().get_moments());
  again.trainer.set_state(rig.trainer.state());
  Weights average = rig.ema();
  again.trainer.parameters().set_ema(average);
  rig.update(2), again.update(2);
  expect_same(rig.ema(), again.ema());
  average.erase("head.weight");
  EXPECT_EQ(error_of([&] { rig.trainer.parameters().set_ema(average); }),
            "checkpoint: the average of the weights lacks 'head.weight'");
}

INSTANTIATE_TEST_SUITE_P(Devices, Ema,
                         testing::Values(Case{}, Case{.device = DeviceKind::simt},
                                         Case{.device = DeviceKind::simt, .dtype = DType::bf16},
                                         Case{.device = DeviceKind::cuda},
                                         Case{.device = DeviceKind::cuda, .dtype = DType::fp16}),
                         [](const auto& test) {
                           return word_of(test.param.device) +
                                  (test.param.dtype == DType::fp32 ? "" : "_16_bits");
                         });

TEST(EmaOfAResnet, HasTheBuffersAsTheyAre) {
  Rig rig({.resnet = true});
  rig.update(1), rig.update(2);
  const Weights weights = rig.weights(), average = rig.ema();
  ASSERT_EQ(average.size(), weights.size());
  for (const auto& [name, tensor] : average)
    EXPECT_EQ(tensor.data == weights.at(name).data, name.find(".running_") != name.npos) << name;
}

TEST(EmaPlan, IsNotThereUnlessAskedFor) {
  Rig rig({.ema_rate = 0});
  EXPECT_TRUE(rig.ema().empty());
  EXPECT_EQ(rig.trainer.plan().ema, 0u);
}

}  // namespace
}  // namespace bv::test
