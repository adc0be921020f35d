// Predictions of an evaluation, in training and from weights alone.
#include "engine/inference/inference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/setup/device.h"
#include "engine/training/trainer.h"
#include "tests/devices.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

constexpr int batches = 3, side = 32;

// Random pixels; the last batch has one unused row, the first a skipped image.
struct Images {
  std::vector<uint8_t> pixels;
  std::vector<Crop> crops = std::vector<Crop>(small_batch);
  std::vector<int32_t> labels;
  int count = small_batch;
  explicit Images(uint32_t number) {
    for (uint32_t i = 0; i < small_batch * side * side * 3; ++i)
      pixels.push_back(static_cast<uint8_t>(philox(7, i, number, 0, random_data).at[0]));
    for (uint32_t i = 0; i < small_batch; ++i)
      labels.push_back(static_cast<int32_t>((3 * number + 2 * i) % small_classes));
    if (number == 0) labels[1] = -1;
    if (number + 1 == batches) labels[static_cast<size_t>(--count)] = -1;
  }
  Batch batch(uint32_t number) const {
    return {.images = pixels.data(),
            .crops = crops.data(),
            .ops = nullptr,
            .labels = labels.data(),
            .height = side,
            .width = side,
            .count = count,
            .position = number * small_batch,
            .wait_seconds = 0};
  }
};

Graph small_graph(bool resnet, DType dtype) {
  const InputShape input = square_input(small_batch, side, resnet ? 1 : 8);
  if (resnet) return small_resnet(input, dtype, small_classes);
  return build_vit({.embed_dim = 64, .depth = 2, .heads = 2}, {.classes = small_classes}, input,
                   dtype);
}

void expect_equal(const std::vector<Prediction>& a, const std::vector<Prediction>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].index, b[i].index);
    EXPECT_EQ(a[i].label, b[i].label);
    EXPECT_EQ(a[i].top, b[i].top);
    EXPECT_EQ(a[i].loss, b[i].loss);
    EXPECT_EQ(a[i].probability, b[i].probability);
  }
}

class EachImage : public testing::TestWithParam<std::tuple<DeviceKind, bool, DType>> {
 protected:
  void SetUp() override {
    if (const std::string why = lack_of(device); !why.empty()) GTEST_SKIP() << why;
    backend = make_backend(device, {.index = 0, .threads = 2});
    if (!backend->supports(dtype)) GTEST_SKIP() << "fp32 alone";
  }
  const DeviceKind device = std::get<0>(GetParam());
  const DType dtype = std::get<2>(GetParam());
  const Graph graph = small_graph(std::get<1>(GetParam()), dtype);
  std::unique_ptr<Backend> backend;
  // Used one at a time, like the loader's batches.
  std::vector<Images> images = {Images(0), Images(1), Images(2)};
};

TEST_P(EachImage, AddsUpToTheSumsAndIsTheSameWithoutATrainer) {
  Trainer trainer(*backend, nullptr, graph,
                  {.optimizer = numbers_of(OptimizerKind::adamw),
                   .local_batch = small_batch,
                   .height = side,
                   .width = side,
                   .accumulate = 1,
                   .sync = {.bucket_bytes = 1 << 20},
                   .seed = 0});
  trainer.allocate();
  trainer.parameters().initialise(3);
  const auto evaluate = [&](bool each_image) {
    trainer.begin_evaluation(false, each_image);
    for (uint32_t number = 0; number < batches; ++number) {
      trainer.wait_for_upload();
      trainer.evaluate(images[number].batch(number));
    }
    return trainer.end_evaluation();
  };
  const EvaluationSums plain = evaluate(false);
  EXPECT_TRUE(trainer.predictions().empty());
  const EvaluationSums sums = evaluate(true);
  EXPECT_EQ(sums.loss, plain.loss);
  const std::vector<Prediction> predictions = trainer.predictions();

  ASSERT_EQ(predictions.size(), 7u);
  EXPECT_EQ(sums.count, 7);
  double loss = 0, hits = 0;
  std::vector<int64_t> indices;
  for (const Prediction& p : predictions) {
    loss += p.loss;
    hits += p.label == p.top;
    indices.push_back(p.index);
    EXPECT_EQ(p.label, images[static_cast<size_t>(p.index / small_batch)]
                           .labels[static_cast<size_t>(p.index % small_batch)]);
    if (p.label == p.top) {
      EXPECT_NEAR(p.probability, std::exp(-p.loss), 1e-5);
    }
  }
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(loss, sums.loss);
  EXPECT_EQ(hits, sums.top1);

  Inference inference(*backend, nullptr, graph, small_batch, side);
  EXPECT_LT(inference.bytes(), trainer.plan().peak() / 2);
  inference.allocate();
  inference.parameters().set_weights(trainer.parameters().get_weights());
  std::vector<Prediction> again;
  inference.begin([&](const BatchOutputs& batch) {
    EXPECT_EQ(batch.classes, small_classes);
    append_predictions(batch, again);
  });
  for (uint32_t number = 0; number < batches; ++number) {
    inference.wait_for_upload();
    inference.run(images[number].batch(number));
  }
  EXPECT_EQ(inference.end().loss, sums.loss);
  expect_equal(gather(again, *backend, nullptr), predictions);
}

INSTANTIATE_TEST_SUITE_P(
    Devices, EachImage,
    testing::Combine(testing::Values(DeviceKind::cpu, DeviceKind::simt, DeviceKind::cuda),
                     testing::Bool(), testing::Values(DType::fp32, DType::fp16, DType::bf16)),
    [](const auto& chosen) {
      const DType dtype = std::get<2>(chosen.param);
      return word_of(std::get<0>(chosen.param)) +
             std::string(std::get<1>(chosen.param) ? "_resnet" : "_vit") +
             (dtype == DType::fp32   ? "_fp32"
              : dtype == DType::fp16 ? "_fp16"
                                     : "_bf16");
    });

}  // namespace
}  // namespace bv::test
