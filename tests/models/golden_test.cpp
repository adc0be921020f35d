// Compares whole models with timm's and torchvision's, computed by PyTorch in float64
// (tests/golden/make_golden.py): logits, loss and the gradient of every parameter; running
// statistics and evaluation with them. If build/peers exists (make peers), also exchanges weights
// files with timm and torchvision in both directions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "engine/files/weights.h"
#include "engine/options/model_config.h"
#include "engine/setup/device.h"
#include "kernels/cpu/backend.h"
#include "tests/devices.h"
#include "tests/golden/model_run.h"
#include "tests/temporary_folder.h"

namespace bv::test::golden {
namespace {

struct GoldenCase {
  std::string model;
  DeviceKind device;
};

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    const DeviceKind device = GetParam().device;
    if (const std::string why = lack_of(device); !why.empty()) GTEST_SKIP() << why;
    golden_ = read_model(GetParam().model);
    run_.emplace(make_backend(device, {.index = 0, .threads = 2}), golden_);
    run_->set_formula_weights();
  }

  void expect_heads();

  Model golden_;
  std::optional<ModelRun> run_;
};

using Shapes = std::map<std::string, std::vector<int64_t>>;
Shapes shapes_of(const std::vector<ParameterInfo>& infos) {
  Shapes shapes;
  for (const ParameterInfo& p : infos) shapes[p.name] = p.shape;
  return shapes;
}
Shapes shapes_of(const std::map<std::string, GoldenTensor>& tensors) {
  Shapes shapes;
  for (const auto& [name, t] : tensors) shapes[name] = t.shape;
  return shapes;
}

void expect_logits(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << "logit " << i;
}

void Golden::expect_heads() {
  if (golden_.heads.empty()) return;
  std::vector<float> heads = run_->values("head");
  for (const float logit : run_->values("head_dist")) heads.push_back(logit);
  expect_logits(heads, golden_.heads);
}

TEST_P(Golden, NamesAndShapesAreThoseOfPyTorch) {
  const Graph& graph = run_->graph();
  EXPECT_EQ(shapes_of(graph.parameters()), shapes_of(golden_.gradients));
  EXPECT_EQ(shapes_of(graph.buffers()), shapes_of(golden_.buffers));
  EXPECT_EQ(static_cast<int64_t>(graph.parameter_count()), golden_.parameters);
}

// softmax(q k + q b) = softmax(q k) for every key bias b: its gradient is only rounding error.
void expect_no_key_bias_gradient(const std::string& name, const std::vector<float>& dbias,
                                 double largest) {
  const size_t C = dbias.size() / 3;
  for (size_t i = C; i < 2 * C; ++i)
    ASSERT_LE(std::abs(dbias[i]), 1e-5 * largest) << name << " " << i;
}

TEST_P(Golden, LogitsLossAndGradients) {
  run_->forward();
  expect_logits(run_->logits(), golden_.logits);
  expect_heads();
  const auto losses = run_->losses();
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size());
  EXPECT_NEAR(loss, golden_.loss, 1e-5);

  run_->backward();
  for (const auto& [name, gradient] : run_->gradients()) {
    const GoldenTensor& want = golden_.gradients.at(name);
    const double tolerance = std::max(1e-4, 2 * want.float32_error);
    EXPECT_EQ(difference(summarize(name, gradient.data), want.summary, tolerance), "") << name;
    if (name.ends_with("attn.qkv.bias"))
      expect_no_key_bias_gradient(name, gradient.data, want.summary.max);
  }
}

// Evaluation runs without dropout; its logits are the mean of both heads.
using GoldenEvaluation = Golden;
TEST_P(GoldenEvaluation, Logits) {
  run_->evaluate();
  expect_logits(run_->logits(), golden_.evaluation_logits);
}

using GoldenStatistics = Golden;
TEST_P(GoldenStatistics, AfterOneStepAndInEvaluation) {
  run_->forward();
  const auto weights = run_->weights();
  for (const auto& [name, want] : golden_.buffers)
    EXPECT_EQ(difference(summarize(name, weights.at(name).data), want.summary, 1e-5), "") << name;
  run_->evaluate();
  expect_logits(run_->logits(), golden_.evaluation_logits);
  const auto after = run_->weights();
  for (const auto& [name, tensor] : weights) EXPECT_EQ(after.at(name).data, tensor.data) << name;
}

// The whole ResNet-34 would only add time on the stand-in.
std::vector<GoldenCase> cases_of(const std::vector<const char*>& models) {
  std::vector<GoldenCase> cases;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::simt, DeviceKind::cuda})
    for (const char* model : models)
      if (device != DeviceKind::simt || std::string(model) != "resnet34")
        cases.push_back({model, device});
  return cases;
}
std::string title(const testing::TestParamInfo<GoldenCase>& chosen) {
  return chosen.param.model + "_" + word_of(chosen.param.device);
}
INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    testing::ValuesIn(cases_of({"vit_tiny_224", "vit_tiny_32", "vit_small_3_blocks",
                                "vit_base_2_blocks", "vit_base_384_2_blocks", "vit_large_2_blocks",
                                "vit_tiny_dropout", "vit_tiny_distilled",
                                "vit_tiny_distilled_dropout", "vit_tiny_pre_logits", "resnet18",
                                "resnet34", "resnet34_4_blocks", "resnet50_5_blocks",
                                "resnet101_6_blocks", "resnet152_7_blocks", "resnext50_5_blocks"})),
    title);
INSTANTIATE_TEST_SUITE_P(Models, GoldenEvaluation,
                         testing::ValuesIn(cases_of({"vit_tiny_distilled_dropout"})), title);
INSTANTIATE_TEST_SUITE_P(Models, GoldenStatistics,
                         testing::ValuesIn(cases_of({"resnet18", "resnet34", "resnet34_4_blocks",
                                                     "resnet50_5_blocks", "resnet101_6_blocks",
                                                     "resnet152_7_blocks", "resnext50_5_blocks"})),
                         title);

// A golden file's model, or a whole model on small images.
Model peer_model(const std::string& name) {
  if (std::filesystem::exists("tests/golden/" + name + ".json")) return read_model(name);
  Model whole;
  whole.model = name;
  whole.image_size = 48;
  whole.patch_size = load_model_config(name).patch_size;
  whole.classes = whole.options.classes = 10;
  whole.batch = 2;
  whole.sizes = "{}";
  return whole;
}

// A model of each kind, and the larger models whole: PyTorch loads our weights, and we load its.
class Peer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(python)) GTEST_SKIP() << "no " << python << " (make peers)";
  }
  int run(const std::string& script_and_arguments) {
    return std::system((std::string(python) + " tests/golden/" + script_and_arguments).c_str());
  }
  template <class T>
  void write(const std::string& name, const std::vector<T>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(T)));
    ASSERT_TRUE(file.good());
  }

  static constexpr const char* python = "build/peers/bin/python";
  TemporaryFolder folder_;
  Model model_ = peer_model(GetParam());
};

TEST_P(Peer, LoadsOurWeightsAndGivesOurLogits) {
  ModelRun ours(make_cpu_backend(2, false), model_);
  ours.parameters().initialise(7);
  ours.forward();  // updates a residual network's statistics once
  ours.evaluate();
  write("images", images(model_.batch, model_.image_size));
  write("logits", ours.logits());
  WeightsInfo info{.model = model_.model,
                   .image_size = model_.image_size,
                   .classes = std::vector<std::string>(size_t(model_.classes), "any"),
                   .mean = {{.5, .5, .5}},
                   .std = {{.5, .5, .5}}};
  if (model_.patch_size) info.patch_size = model_.patch_size;
  write_safetensors(folder_ / "weights.safetensors",
                    {.metadata = weights_metadata(info), .tensors = ours.weights()});
  EXPECT_EQ(run("check_peer.py " + (folder_ / "weights.safetensors") + " " + (folder_ / "images") +
                " " + (folder_ / "logits")),
            0);
}

TEST_P(Peer, ItsWeightsGiveItsLogitsHere) {
  const std::string file = folder_ / "peer.safetensors";
  std::string command = "write_peer.py " + model_.model + " " + file + " --logits " +
                        (folder_ / "logits") + " --image-size " +
                        std::to_string(model_.image_size) + " --classes " +
                        std::to_string(model_.classes) + " --batch " + std::to_string(model_.batch);
  if (const int features = model_.options.representation_size)
    command += " --representation-size " + std::to_string(features);
  if (model_.patch_size) command += " --patch-size " + std::to_string(model_.patch_size);
  const auto sizes = nlohmann::json::parse(model_.sizes);
  if (sizes.contains("depth")) command += " --depth " + sizes["depth"].dump();
  if (sizes.contains("layers")) {
    command += " --layers";
    for (const int n : sizes["layers"]) command += " " + std::to_string(n);
  }
  ASSERT_EQ(run(command), 0);
  ModelRun ours(make_cpu_backend(2, false), model_);
  std::vector<ParameterShape> shapes;
  for (const auto* infos : {&ours.graph().parameters(), &ours.graph().buffers()})
    for (const ParameterInfo& p : *infos) shapes.push_back({p.name, p.shape});
  const FitResult fit = fit_weights(read_safetensors(file), file, shapes,
                                    {"head.weight", "head.bias", "fc.weight", "fc.bias"});
  EXPECT_TRUE(fit.fresh.empty());
  ours.parameters().set_weights(fit.tensors);
  ours.evaluate();

  const auto logits = ours.logits();
  std::vector<float> expected(logits.size());
  std::ifstream(folder_ / "logits", std::ios::binary)
      .read(reinterpret_cast<char*>(expected.data()),
            static_cast<std::streamsize>(expected.size() * sizeof(float)));
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], 1e-5) << "logit " << i;
}

INSTANTIATE_TEST_SUITE_P(Models, Peer,
                         testing::Values("vit_tiny_32", "vit_tiny_distilled", "vit_tiny_pre_logits",
                                         "vit_small", "vit_base", "vit_base_384_2_blocks",
                                         "resnet18", "resnet34_4_blocks", "resnet101", "resnet152",
                                         "resnext50_5_blocks"),
                         [](const auto& chosen) { return std::string(chosen.param); });

}  // namespace
}  // namespace bv::test::golden
