// Whole models against PyTorch and timm, computed there in float64 (tests/golden/make_golden.py):
// logits, loss and the gradient of every parameter. Where build/peers is (make peers), also weights
// files of either side in the other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "engine/device.h"
#include "engine/weights.h"
#include "kernels/cpu/backend.h"
#include "tests/golden/model_run.h"
#include "tests/temporary_folder.h"

namespace bv::golden {
namespace {

struct GoldenCase {
  std::string model;
  DeviceKind device;
};

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    const DeviceKind device = GetParam().device;
    if (!is_built(device)) GTEST_SKIP() << "not built";
    std::string why;
    if (device == DeviceKind::cuda && gpu_count(&why) == 0) GTEST_SKIP() << "no GPU: " << why;
    golden_ = read_model(GetParam().model);
    run_.emplace(make_backend(device, {.index = 0, .threads = 2}), golden_);
    run_->set_formula_weights();
  }

  Model golden_;
  std::optional<ModelRun> run_;
};

TEST_P(Golden, NamesAndShapesAreTimms) {
  std::map<std::string, std::vector<int64_t>> ours, timms;
  for (const ParameterInfo& p : run_->graph().parameters()) ours[p.name] = p.shape;
  for (const auto& [name, gradient] : golden_.gradients) timms[name] = gradient.shape;
  EXPECT_EQ(ours, timms);
  EXPECT_EQ(static_cast<int64_t>(run_->graph().parameter_count()), golden_.parameters);
}

// softmax(q k + q b) = softmax(q k) for every key bias b: its gradient is what rounding leaves.
void expect_no_key_bias_gradient(const std::string& name, const std::vector<float>& dbias,
                                 double largest) {
  const size_t C = dbias.size() / 3;
  for (size_t i = C; i < 2 * C; ++i)
    ASSERT_LE(std::abs(dbias[i]), 1e-5 * largest) << name << " " << i;
}

TEST_P(Golden, LogitsLossAndGradients) {
  run_->forward();
  const auto logits = run_->logits();
  ASSERT_EQ(logits.size(), golden_.logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], golden_.logits[i], 1e-5) << "logit " << i;
  const auto losses = run_->losses();
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size());
  EXPECT_NEAR(loss, golden_.loss, 1e-5);

  run_->backward();
  for (const auto& [name, values] : run_->gradients()) {
    const Summary& want = golden_.gradients.at(name).summary;
    EXPECT_EQ(difference(summarize(name, values), want, 1e-4), "") << name;
    if (name.ends_with("attn.qkv.bias")) expect_no_key_bias_gradient(name, values, want.max);
  }
}

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::simt, DeviceKind::cuda})
    for (const char* model : {"vit_tiny_224", "vit_tiny_32", "vit_large_2_blocks"})
      cases.push_back({model, device});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(golden_cases()), [](const auto& chosen) {
  return chosen.param.model + "_" + name_of(chosen.param.device);
});

class Timm : public testing::Test {
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
  Model model_ = read_model("vit_tiny_32");
};

TEST_F(Timm, LoadsOurWeightsAndGivesOurLogits) {
  ModelRun ours(make_cpu_backend(2, false), model_);
  ours.parameters().initialise(7);
  ours.forward();
  write("images", images(model_.batch, model_.image_size));
  write("logits", ours.logits());
  const WeightsInfo info{.model = model_.model,
                         .image_size = model_.image_size,
                         .patch_size = model_.patch_size,
                         .classes = std::vector<std::string>(size_t(model_.classes), "any"),
                         .mean = {{.5, .5, .5}},
                         .std = {{.5, .5, .5}}};
  write_safetensors(folder_ / "weights.safetensors", {.metadata = weights_metadata(info),
                                                      .tensors = ours.parameters().get_weights()});
  EXPECT_EQ(run("check_timm.py " + (folder_ / "weights.safetensors") + " " + (folder_ / "images") +
                " " + (folder_ / "logits")),
            0);
}

TEST_F(Timm, ItsWeightsGiveItsLogitsHere) {
  const std::string file = folder_ / "timm.safetensors";
  ASSERT_EQ(run("write_timm.py vit_tiny " + file +
                " --image-size 32 --patch-size 4 --classes 10 --batch 3" + " --logits " +
                (folder_ / "logits")),
            0);
  ModelRun ours(make_cpu_backend(2, false), model_);
  std::vector<ParameterShape> shapes;
  for (const ParameterInfo& p : ours.graph().parameters()) shapes.push_back({p.name, p.shape});
  const FitResult fit =
      fit_weights(read_safetensors(file), file, shapes, {"head.weight", "head.bias"});
  EXPECT_TRUE(fit.fresh.empty());
  ours.parameters().set_weights(fit.tensors);
  ours.forward();

  std::vector<float> expected(model_.logits.size());
  std::ifstream(folder_ / "logits", std::ios::binary)
      .read(reinterpret_cast<char*>(expected.data()),
            static_cast<std::streamsize>(expected.size() * sizeof(float)));
  const auto logits = ours.logits();
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], 1e-5) << "logit " << i;
}

}  // namespace
}  // namespace bv::golden
