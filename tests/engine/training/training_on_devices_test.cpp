// A small ViT and a small ResNet trained on every device that can record a step: the stand-in, and
// a GPU if present. An overflow only skips an update, and no order of the streams changes a bit.
// Whole runs are compared in tests/lattice/.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/options/model_config.h"
#include "engine/training/trainer.h"
#include "kernels/devices/devices.h"
#include "tests/devices.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"
#ifdef BAREVISION_SIMT
#include "simt/device/control.h"
#include "tests/square_input.h"
#endif

namespace bv::test {
namespace {

constexpr int batch = 4, size = 12, patch = 4, classes = 5;

enum class Model { vit, resnet };

Graph small_model(Model model, DType dtype, GraphOptions rates) {
  const InputShape input = square_input(batch, size, patch);
  if (model == Model::resnet) return small_resnet(input, dtype, classes);
  rates.classes = classes;
  return build_vit({.embed_dim = 64, .depth = 2, .heads = 2}, rates, input, dtype);
}

TrainerOptions options() {
  TrainerOptions o{.optimizer = numbers_of(OptimizerKind::adamw, .05f),
                   .local_batch = batch,
                   .height = size,
                   .width = size,
                   .accumulate = 2,
                   .sync = {.bucket_bytes = 1 << 16},
                   .seed = 7};
  o.optimizer.clip = 1;
  return o;
}

struct Case {
  DeviceKind device = DeviceKind::simt;
  Model model = Model::vit;
  DType dtype = DType::fp32;
  GraphOptions rates = {};
};

// Trains as the training loop does: a step's result is read while the next step is in flight, and
// a batch's memory is reused as soon as that is allowed.
class Rig {
 public:
  explicit Rig(const Case& c)
      : backend(make_backend(c.device, {.index = 0, .threads = 2})),
        graph(small_model(c.model, c.dtype, c.rates)),
        trainer(*backend, nullptr, graph, [&] {
          TrainerOptions o = options();
          if (c.dtype == DType::fp16) o.scaling.growth_interval = 4;
          return o;
        }()) {
    trainer.allocate();
    trainer.parameters().initialise(3);
    trainer.set_state({.loss_scale = c.dtype == DType::fp16 ? 1024.0f : 1});
  }

  std::vector<UpdateResult> steps(int count) {
    std::vector<UpdateResult> results;
    bool pending = false;
    for (int step = 0; step < count; ++step) {
      for (const bool last : {false, true}) micro_step(!last, last);
      trainer.step().start_update(3e-3, 2 * batch);
      if (pending) results.push_back(trainer.step().finish_update());
      pending = true;
      if (trainer.step().runs_ahead()) continue;
      results.push_back(trainer.step().finish_update());
      pending = false;
    }
    if (pending) results.push_back(trainer.step().finish_update());
    return results;
  }

  std::unique_ptr<Backend> backend;
  Graph graph;
  Trainer trainer;

 private:
  void micro_step(bool first, bool last) {
    trainer.wait_for_upload();
    const uint32_t which = number_ % 4;  // one of four batches
    const auto word = [&](uint32_t i) { return philox(7, i, which, 0, random_data).at[0]; };
    for (uint32_t i = 0; i < images_.size(); ++i) images_[i] = static_cast<uint8_t>(word(i));
    for (uint32_t b = 0; b < batch; ++b) {
      crops_[b] = {};
      labels_[b] = static_cast<int32_t>((3 * which + 2 * b) % classes);
    }
    trainer.step().micro_step({.images = images_.data(),
                               .crops = crops_.data(),
                               .labels = labels_.data(),
                               .height = size,
                               .width = size,
                               .count = batch,
                               .position = number_ * batch,
                               .wait_seconds = 0},
                              {.epoch = 0, .first = first, .last = last, .stop = false});
    ++number_;
  }

  std::vector<uint8_t> images_ = std::vector<uint8_t>(batch * size * size * 3);
  std::vector<Crop> crops_ = std::vector<Crop>(batch);
  std::vector<int32_t> labels_ = std::vector<int32_t>(batch);
  uint32_t number_ = 0;
};

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, HostTensor> weights;
};
Outcome run(const Case& c, int steps) {
  Rig rig(c);
  Outcome outcome;
  for (const UpdateResult& r : rig.steps(steps)) outcome.losses.push_back(r.loss_sum / r.count);
  outcome.weights = rig.trainer.parameters().get_weights();
  return outcome;
}

void expect_same_bits(const std::map<std::string, HostTensor>& a,
                      const std::map<std::string, HostTensor>& b) {
  for (const auto& [name, tensor] : a) {
    const std::vector<float>& other = b.at(name).data;
    ASSERT_EQ(tensor.data.size(), other.size());
    EXPECT_EQ(std::memcmp(tensor.data.data(), other.data(), other.size() * sizeof(float)), 0)
        << name;
  }
}

class TrainingOn : public testing::TestWithParam<std::tuple<DeviceKind, Model>> {
 protected:
  void SetUp() override {
    if (const std::string why = lack_of(device); !why.empty()) GTEST_SKIP() << why;
  }
  const DeviceKind device = std::get<0>(GetParam());
  const Model model = std::get<1>(GetParam());
};

TEST_P(TrainingOn, AnOverflowHalvesTheScaleAndChangesNothingElse) {
  Rig rig({.device = device, .model = model, .dtype = DType::fp16});
  rig.steps(2);
  auto weights = rig.trainer.parameters().get_weights();
  // Forward updated the running statistics before the overflow was found.
  std::erase_if(weights, [](const auto& w) { return w.first.find(".running_") != w.first.npos; });
  const auto moments = rig.trainer.parameters().get_moments();
  UpdateState state = rig.trainer.state();
  EXPECT_EQ(state.count, 2);
  EXPECT_EQ(state.good_steps, 2);
  state.loss_scale = 0x1p24f;  // so large that the gradients overflow in fp16
  rig.trainer.set_state(state);
  const UpdateResult result = rig.steps(1)[0];
  EXPECT_TRUE(result.skipped);
  EXPECT_TRUE(std::isfinite(result.loss_sum));
  EXPECT_EQ(result.loss_scale, 0x1p23f);
  EXPECT_EQ(result.skipped_in_a_row, 1);
  EXPECT_EQ(rig.trainer.state().count, 2);
  EXPECT_EQ(rig.trainer.state().good_steps, 0);
  expect_same_bits(weights, rig.trainer.parameters().get_weights());
  expect_same_bits(moments, rig.trainer.parameters().get_moments());

  // Training continues by itself, and the scale grows again after 4 good steps.
  int skipped = 0;
  float lowest = 0x1p24f;
  bool grew = false;
  for (const UpdateResult& r : rig.steps(30)) {
    skipped += r.skipped;
    grew = grew || r.loss_scale > lowest;
    lowest = std::min(lowest, r.loss_scale);
  }
  EXPECT_GT(skipped, 2);
  EXPECT_LT(skipped, 20);
  EXPECT_TRUE(grew);
  EXPECT_EQ(rig.trainer.state().count, 2 + 30 - skipped);
}

#ifdef BAREVISION_SIMT
TEST(TrainingOnSimt, NoOrderOfItsStreamsChangesABit) {
  const unsigned before = simt::stream_seed;
  Outcome first;
  for (unsigned seed = 0; seed < 20; ++seed) {
    simt::stream_seed = seed;
    const Outcome outcome = run({.dtype = DType::fp16, .rates = {.attn_drop_rate = .1f}}, 5);
    if (seed == 0) first = outcome;
    EXPECT_EQ(outcome.losses, first.losses) << "seed " << seed;
    expect_same_bits(outcome.weights, first.weights);
  }
  simt::stream_seed = before;
}

// Counts the kernels and copies of ViT-Tiny's step in bf16, so that an added one is noticed.
TEST(TrainingOnSimt, TheGraphOfViTTinysStepDoesntGrow) {
  const ModelConfig m = load_model_config("vit_tiny");
  const Graph vit = build_vit(std::any_cast<const VitConfig&>(m.sizes), {.classes = 10},
                              square_input(batch, 32, 16), DType::bf16);
  const auto backend = make_backend(DeviceKind::simt, {.index = 0, .threads = 1});
  TrainerOptions o = options();
  o.height = o.width = 32;
  o.accumulate = 1;
  Trainer trainer(*backend, nullptr, vit, o);
  trainer.allocate();
  trainer.parameters().initialise(3);
  const std::vector<uint8_t> images(batch * 32 * 32 * 3, 100);
  const std::vector<Crop> crops(batch);
  const std::vector<int32_t> labels(batch, 1);
  const size_t before = simt::host_synchronizations(), spun = simt::spinning_waits();
  for (int step = 0; step < 3; ++step) {
    trainer.wait_for_upload();
    trainer.step().micro_step({.images = images.data(),
                               .crops = crops.data(),
                               .labels = labels.data(),
                               .height = 32,
                               .width = 32,
                               .count = batch,
                               .position = 0,
                               .wait_seconds = 0},
                              {.epoch = 0, .first = true, .last = true, .stop = false});
    trainer.step().start_update(1e-3, batch);
    if (step > 0) trainer.step().finish_update();
  }
  // One synchronization for each of the first two batches and of the first two updates.
  EXPECT_EQ(simt::host_synchronizations() - before, 4u);
  EXPECT_EQ(simt::spinning_waits(), spun);
  trainer.step().finish_update();
  EXPECT_EQ(vit.nodes().size(), 90u);
  EXPECT_EQ(trainer.step().graph_nodes(), 274);  // two of them: round_product() for 10 classes
}
#endif

std::string case_name(const testing::TestParamInfo<std::tuple<DeviceKind, Model>>& chosen) {
  return std::string(std::get<0>(chosen.param) == DeviceKind::simt ? "simt" : "cuda") +
         (std::get<1>(chosen.param) == Model::vit ? "_vit" : "_resnet");
}
INSTANTIATE_TEST_SUITE_P(Devices, TrainingOn,
                         testing::Combine(testing::Values(DeviceKind::simt, DeviceKind::cuda),
                                          testing::Values(Model::vit, Model::resnet)),
                         case_name);

}  // namespace
}  // namespace bv::test
