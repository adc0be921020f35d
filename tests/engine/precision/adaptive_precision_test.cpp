// Adaptive precision in training: the trainer's two models.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/training/trainer.h"
#include "kernels/devices/devices.h"
#include "tests/devices.h"
#include "tests/models/small_vit.h"

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

}  // namespace
}  // namespace bv::test
