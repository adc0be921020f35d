// The operations of a model's step, recorded instead of run.
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/recorded_model.h"

namespace bv::test {
namespace {

template <class Op>
int count_of(const std::vector<RecordedOperation>& operations) {
  int count = 0;
  for (const RecordedOperation& o : operations)
    if (std::holds_alternative<Op>(o.operation)) count += o.count;
  return count;
}

TEST(Recording, CountsTheOperationsOfViTTiny) {
  const auto step = record_model({"vit_tiny", "--batch", "2", "--image-size", "224"});
  EXPECT_EQ(count_of<InputPatches>(step), 1);
  EXPECT_EQ(count_of<LinearForward>(step), 1 + 12 + 1);
  EXPECT_EQ(count_of<LinearBackwardInput>(step), 12) << "images have no gradient";
  EXPECT_EQ(count_of<LinearBackwardWeight>(step), 1 + 12 * 4 + 1);
  EXPECT_EQ(count_of<LinearNormForward>(step), 2 * 12);
  EXPECT_EQ(count_of<LayerNormForward>(step), 1) << "the first, which adds nothing";
  EXPECT_EQ(count_of<NormLinearBackwardInput>(step), 2 * 12 + 1);
  EXPECT_EQ(count_of<LayerNormBackward>(step), 0) << "they are the next linears'";
  EXPECT_EQ(count_of<AttentionForward>(step), 12);
  EXPECT_EQ(count_of<AttentionBackward>(step), 12);
  EXPECT_EQ(count_of<LinearGeluForward>(step), 12);
  EXPECT_EQ(count_of<GeluLinearBackwardInput>(step), 12);
  EXPECT_EQ(count_of<BiasGeluForward>(step) + count_of<BiasGeluBackward>(step), 0)
      << "they are the linears'";
  EXPECT_EQ(count_of<TakeTokensForward>(step), 1)
      << "from the last attention on, the class token is computed alone";
  EXPECT_EQ(count_of<OptimizerUpdate>(step), 1);
  EXPECT_EQ(count_of<Metrics>(step), 0) << "evaluation's";
  EXPECT_LT(step.size(), 60u) << "the same operation is one entry";
}

int dropped(const std::vector<RecordedOperation>& operations, const std::string& name) {
  int count = 0;
  for (const RecordedOperation& o : operations)
    if (o.name.starts_with(name) && o.name.ends_with(" dropped")) count += o.count;
  return count;
}

TEST(Recording, DropPathIsAPartOfLayerNorms) {
  const auto step = record_model({"vit_tiny", "--batch", "2", "--drop-path-rate", "0.1"});
  EXPECT_EQ(count_of<Dropout>(step), 0);
  EXPECT_EQ(dropped(step, "LinearNormForward"), 2 * 11) << "the first block drops nothing";
  EXPECT_EQ(dropped(step, "NormLinearBackwardInput"), 2 * 11);
}

TEST(Recording, DropoutIsAPartOfItsNeighbours) {
  const auto step = record_model({"vit_tiny", "--batch", "2", "--proj-drop-rate", "0.1"});
  EXPECT_EQ(count_of<Dropout>(step), 0);
  for (const char* name : {"LinearNormForward", "NormLinearBackwardInput"})
    EXPECT_EQ(dropped(step, name), 2 * 12) << name;
  for (const char* name : {"LinearGeluForward", "GeluLinearBackwardInput"})
    EXPECT_EQ(dropped(step, name), 12) << name;
}

TEST(Recording, ShapesSayWhatModelsRun) {
  const auto step = record_model({"resnext50_32x4d", "--batch", "2", "--image-size", "64"});
  EXPECT_EQ(count_of<ConvForward>(step), 53);
  const auto find = [&](const std::string& name, const std::string& shape) {
    for (const RecordedOperation& o : step)
      if (o.name == name && o.shape == shape) return o.count;
    return -1;
  };
  EXPECT_EQ(find("ConvForward", "N2 H16 W16 C128 K128 R3 S3 groups32"), 3);
  EXPECT_EQ(find("ConvBackwardInputSums +add relu", "N2 H16 W16 C256 K128"), 2);
  EXPECT_EQ(find("BatchNormForward +residual relu", "rows512 C256"), 2);
  EXPECT_EQ(find("BatchNormForward +residual residual_norm relu", "rows512 C256"), 1);
  EXPECT_EQ(find("BatchNormEvaluate +residual relu", "rows512 C256"), 0);
}

// 2 flops per token and element of a weight, and 4 N C per query for attention's two products; in
// the last block only the class token is a query, and only it enters the MLP.
TEST(Recording, FlopsOfViTTinyAreThoseOfItsProducts) {
  constexpr double N = 197, C = 192, block = 12 * C * C, last = 3 * C * C;
  constexpr double weights = 11 * N * block + N * last + 9 * C * C + 196 * 768 * C + C * 1000;
  constexpr double forward = 2 * weights + (11 * N + 1) * 4 * N * C;
  double recorded = 0;
  for (const RecordedOperation& o : record_model({"vit_tiny", "--batch", "1"}))
    if (const auto* gelu = std::get_if<LinearGeluForward>(&o.operation))
      recorded += o.count * cost_of(gelu->product()).flops;
    else if (const auto* norm = std::get_if<LinearNormForward>(&o.operation))
      recorded += o.count * cost_of(norm->product()).flops;
    else if (std::holds_alternative<LinearForward>(o.operation) ||
             std::holds_alternative<AttentionForward>(o.operation))
      recorded += o.count * o.cost.flops;
  EXPECT_NEAR(recorded, forward, .01 * forward);
}

TEST(Recording, TensorsThatShareMemoryStillDo) {
  char a = 0, b = 0;
  const Dropout in_place{
      .out = &a, .inp = &a, .params = nullptr, .shape = {1, 4}, .dtype = DType::fp32};
  int blocks = 0;
  const Dropout other = in_new_memory(in_place, [&](const TensorArgument& t) -> void* {
    ++blocks;
    EXPECT_EQ(t.bytes, 16);
    return &b;
  });
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(other.out, &b);
  EXPECT_EQ(other.inp, &b);
  EXPECT_EQ(other.params, nullptr);
}

TEST(Recording, AnUnknownModelIsTheUsersMistake) {
  EXPECT_THROW(record_model({"resnet35"}), UserError);
}

}  // namespace
}  // namespace bv::test
