// Adaptive precision in training: the trainer's two models, and whole runs that switch precision.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <optional>
#include <sstream>

#include "engine/files/checkpoint.h"
#include "engine/run/run.h"
#include "kernels/devices/devices.h"
#include "tests/devices.h"
#include "tests/emulated_bf16.h"
#include "tests/engine/run/train_here.h"
#include "tests/models/small_vit.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

constexpr int batch = 4, size = 12, classes = 5;

Graph model_in(DType dtype) {
  return build_vit({.embed_dim = 64, .depth = 2, .heads = 2}, {.classes = classes},
                   square_input(batch, size, 4), dtype);
}

// A trainer of one or two models on the stand-in.
struct Rig {
  Rig(DType dtype, bool adaptive)
      : graph(model_in(dtype)),
        trainer(*backend, nullptr, graph, options(), adaptive ? &fp32 : nullptr) {
    const size_t free = backend->memory_limit();
    trainer.allocate();
    taken = free - backend->memory_limit();
    trainer.parameters().initialise(3);
  }
  static TrainerOptions options() {
    TrainerOptions o{.optimizer = numbers_of(OptimizerKind::adamw, .05f),
                     .local_batch = batch,
                     .height = size,
                     .width = size,
                     .accumulate = 1,
                     .sync = {.bucket_bytes = 1 << 16}};
    o.optimizer.ema_rate = .05f;
    o.scaling.growth_interval = 3;
    return o;
  }
  Batch batch_of(uint32_t number) {
    for (uint32_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<uint8_t>(philox(7, i, number, 0, random_data).at[0]);
    return {.images = pixels.data(),
            .crops = crops.data(),
            .labels = labels.data(),
            .height = size,
            .width = size,
            .count = batch};
  }
  double update(uint32_t number) {
    trainer.wait_for_upload();
    trainer.step().micro_step(batch_of(number),
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.step().start_update(1e-2, batch);
    return trainer.step().finish_update().loss_sum;
  }
  double evaluate(bool averaged) {
    trainer.begin_evaluation(averaged, true);
    trainer.evaluate(batch_of(9));
    return trainer.end_evaluation().loss;
  }
  // Copies all state that one epoch passes to the next.
  void take_over(Rig& from) {
    trainer.parameters().set_weights(from.trainer.parameters().get_weights());
    trainer.parameters().set_moments(from.trainer.parameters().get_moments());
    trainer.parameters().set_ema(from.trainer.parameters().get_ema());
  }

  std::unique_ptr<Backend> backend = make_backend(DeviceKind::simt, {.index = 0, .threads = 2});
  Graph graph, fp32 = model_in(DType::fp32);
  Trainer trainer;
  size_t taken;  // bytes of the device's memory
  std::vector<uint8_t> pixels = std::vector<uint8_t>(batch * size * size * 3);
  std::vector<Crop> crops = std::vector<Crop>(batch);
  std::vector<int32_t> labels = {0, 1, 2, 3};
};

class AdaptivePrecisionTest : public testing::Test {
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  }
};

TEST_F(AdaptivePrecisionTest, TheTrainersSwitchesAreThoseOfTwoTrainers) {
  Rig both(DType::fp16, true), first(DType::fp16, false), second(DType::fp32, false),
      third(DType::fp16, false);
  first.trainer.set_state({.loss_scale = 1024});
  both.trainer.set_state({.loss_scale = 1024});
  const size_t memory = both.backend->memory_limit();
  const auto go = [&](Rig& alone, uint32_t number) {
    EXPECT_EQ(both.update(number), alone.update(number));
    for (const bool averaged : {true, false})
      EXPECT_EQ(both.evaluate(averaged), alone.evaluate(averaged));
  };
  for (const uint32_t number : {1, 2, 3, 4}) go(first, number);
  UpdateState state = first.trainer.state();
  EXPECT_EQ(state.loss_scale, 2048);
  EXPECT_EQ(state.good_steps, 1);

  both.trainer.compute_in(DType::fp32);
  EXPECT_EQ(both.trainer.dtype(), DType::fp32);
  second.take_over(first);
  second.trainer.set_state({.count = state.count, .loss_scale = 1});
  for (const uint32_t number : {5, 6, 7, 8}) go(second, number);
  EXPECT_EQ(both.trainer.state().loss_scale, 2048);  // kept
  EXPECT_EQ(both.trainer.state().good_steps, 1);

  both.trainer.compute_in(DType::fp16);
  third.take_over(second);
  state.count = second.trainer.state().count;
  third.trainer.set_state(state);
  for (const uint32_t number : {9, 10}) go(third, number);
  EXPECT_EQ(both.trainer.state().loss_scale, 4096);
  const auto weights = both.trainer.parameters().get_weights();
  for (const auto& [name, tensor] : third.trainer.parameters().get_weights())
    EXPECT_EQ(weights.at(name).data, tensor.data) << name;
  EXPECT_EQ(both.backend->memory_limit(), memory) << "a switch took memory";
}

TEST_F(AdaptivePrecisionTest, BothModelsArePlannedOnceInTheSameMemory) {
  const Rig both(DType::fp16, true), half(DType::fp16, false), single(DType::fp32, false);
  const MemoryPlan &plan = both.trainer.plan(), &fp16 = half.trainer.plan(),
                   &fp32 = single.trainer.plan();
  EXPECT_EQ(plan.activations, std::max(fp16.activations, fp32.activations));
  EXPECT_EQ(plan.scratch, std::max(fp16.scratch, fp32.scratch));
  EXPECT_EQ(plan.compute_weights, fp16.compute_weights);
  EXPECT_EQ(plan.peak(), fp32.peak() + fp16.compute_weights);
  EXPECT_EQ(both.taken, single.taken + fp16.compute_weights);
  EXPECT_EQ(both.trainer.largest_chunk().graph().dtype(), DType::fp32);
}

// ---- whole runs ---------------------------------------------------------------------------------
struct Sixteen {
  std::string device, precision;
};

class AdaptiveRuns : public ProgramTest, public testing::WithParamInterface<Sixteen> {
 protected:
  void SetUp() override {
    if (GetParam().device == "simt" && !is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
    if (GetParam().device == "cpu")
      if (const std::string why = emulated_.emplace().lack(); !why.empty()) GTEST_SKIP() << why;
    make_cifar(in("cifar"));
    change_model("vit_tiny", "\"depth\": 12", "\"depth\": 1");
  }
  // Five updates per epoch.
  void train_to(const std::string& out, const std::string& more,
                const std::string& precision = GetParam().precision) const {
    std::istringstream words("vit_tiny --image-size 32 --patch-size 16 --data " + in("cifar") +
                             " --batch 8 --warmup-epochs 0 --ema .9 --log-every 1"
                             " --loss-scale-growth-interval 2 --loss-scale-init 1024"
                             " --tensorboard off --device " +
                             GetParam().device + " --precision " + precision + " --out " + in(out) +
                             " " + more);
    const std::istream_iterator<std::string> begin(words), end;
    ASSERT_EQ(train_here(Strings(begin, end), {}), 0);
  }
  void expect_same_end(const std::string& a, const std::string& b) const {
    for (const char* file : {"weights", "ema", "state"}) {
      const std::string path = std::string("/last/") + file + ".safetensors";
      EXPECT_TRUE(contents(in(a) + path) == contents(in(b) + path)) << a << ", " << b << path;
    }
    for (const char* member : {"loss", "grad_norm", "loss_scale"})
      EXPECT_EQ(metric(in(a), "step", member), metric(in(b), "step", member)) << a << ", " << b;
    EXPECT_EQ(last_metric(in(a), "epoch", "val_loss"), last_metric(in(b), "epoch", "val_loss"));
  }

  std::optional<EmulatedBf16> emulated_;
};

TEST_P(AdaptiveRuns, OverAllEpochsIsSixteenBitsAndOverNoneFp32) {
  const std::string precision = GetParam().precision, two = "--epochs 2 ";
  train_to("plain", two);
  train_to("all", two + "--amp-policy 0 --amp-start 0 --amp-end 9");
  expect_same_end("plain", "all");
  EXPECT_EQ(metric(in("all"), "epoch", "precision"), (Strings{precision, precision}));
  EXPECT_TRUE(metric(in("plain"), "epoch", "precision").empty());
  train_to("fp32", two, "fp32");
  train_to("none", two + "--amp-policy 0 --amp-start 8 --amp-end 9");
  expect_same_end("fp32", "none");
  EXPECT_NE(losses(in("fp32")), losses(in("plain")));
  EXPECT_EQ(metric(in("none"), "epoch", "precision_reason").back(), "not within epochs 8 to 9");
}

// fp32, then 16 bits in the second epoch, then fp32 in the third.
TEST_P(AdaptiveRuns, AreResumedBitForBitFromTheMiddleOfEachEpoch) {
  const std::string policy = "--epochs 3 --amp-policy 0 --amp-start 2 --amp-end 2 ";
  train_to("whole", policy);
  EXPECT_EQ(metric(in("whole"), "epoch", "precision"),
            (Strings{"fp32", GetParam().precision, "fp32"}));
  train_to("parts", policy + "--steps 2");
  for (const char* steps : {"8", "12", "15"})
    ASSERT_EQ(train_here({"--resume", in("parts"), "--steps", steps}, {}), 0);
  expect_same_end("whole", "parts");
  const Checkpoint whole = load_checkpoint(in("whole")), parts = load_checkpoint(in("parts"));
  const bool scaled = GetParam().precision == "fp16";
  EXPECT_EQ(whole.update.loss_scale, scaled ? 4096 : 0);
  EXPECT_EQ(whole.update.good_steps, scaled ? 1 : 0);
  EXPECT_EQ(parts.update.loss_scale, whole.update.loss_scale);
  EXPECT_EQ(parts.update.good_steps, whole.update.good_steps);
  EXPECT_EQ(parts.precision->losses[0], whole.precision->losses[0]);
  EXPECT_EQ(parts.precision->losses[1], whole.precision->losses[1]);
}

INSTANTIATE_TEST_SUITE_P(Devices, AdaptiveRuns,
                         testing::Values(Sixteen{"simt", "fp16"}, Sixteen{"cpu", "bf16"}),
                         [](const auto& test) {
                           return test.param.device + "_" + test.param.precision;
                         });

}  // namespace
}  // namespace bv::test
