// Compares mixed images and their loss, on every device, with timm's Mixup and
// SoftTargetCrossEntropy (tests/golden/training/make_mixing.py).
#include "tests/models/golden_mixing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/augment/mixing.h"
#include "tests/kernels/kernel_problem.h"

namespace bv::test {
namespace {

class GoldenMixing : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
    if (!reference_) GTEST_SKIP() << "not in the project's folder";
  }
  void run(const Problem& p) {
    for (const std::string& failure : execute(p, GetParam(), 0, 0xFF).failures)
      ADD_FAILURE() << failure;
  }
  int rows() const { return static_cast<int>(reference_->labels.size()); }
  const std::optional<golden::MixingReference> reference_ = golden::mixing();
};

// Normalised so that each pixel level keeps its value.
TEST_P(GoldenMixing, ImagesAreTimms) {
  const auto& r = *reference_;
  for (const int patch : {1, 4})
    for (const golden::MixedBatch& c : r.batches) {
      const size_t bytes = c.images.size() / c.mixes.size();
      std::vector<uint8_t> mixed(c.images.size());
      for (size_t b = 0; b < c.mixes.size(); ++b)
        mix_pictures(&mixed[b * bytes], &r.images[b * bytes], &r.images[(b ^ 1) * bytes],
                     c.mixes[b], r.size);
      Problem p(DType::fp32);
      p.changed_objects<float>(
          "out", std::vector<float>(mixed.size()), [&](const float* out) -> std::string {
            for (int b = 0; b < rows(); ++b)
              for (int y = 0; y < r.size; ++y)
                for (int x = 0; x < r.size; ++x)
                  for (int ch = 0; ch < 3; ++ch) {
                    const int grid = r.size / patch;
                    const int token = (b * grid + y / patch) * grid + x / patch;
                    const int at = ((token * 3 + ch) * patch + y % patch) * patch + x % patch;
                    const size_t i = ((size_t(b) * r.size + y) * r.size + x) * 3 + ch;
                    const long level = std::lround(out[at]);
                    if (level != mixed[i] || std::abs(level - c.images[i]) > 1)
                      return c.options + ": row " + std::to_string(b) + ", byte " +
                             std::to_string(i % bytes) + " is " + std::to_string(level) +
                             ", timm's " + std::to_string(c.images[i]);
                  }
            return "";
          });
      p.objects("images", r.images), p.objects("mixes", c.mixes);
      constexpr float unit = 1.0f / 255;
      p.runs(
          InputPatches{.shape = {rows(), r.size, r.size, r.size, patch, {}, {unit, unit, unit}}});
      run(p);
    }
}

TEST_P(GoldenMixing, LossIsTimms) {
  const auto& r = *reference_;
  for (const golden::MixedBatch& c : r.batches) {
    Problem p(DType::fp32);
    const size_t B = c.mixes.size();
    p.changed_objects<float>("loss", std::vector<float>(B), [&](const float* loss) -> std::string {
      double mean = 0, expected = 0;
      for (size_t b = 0; b < B; ++b) {
        mean += double{loss[b]} / double(B), expected += c.loss[b] / double(B);
        if (!(std::fabs(loss[b] - c.loss[b]) <= 1e-6 * std::max(1.0, c.loss[b])))
          return c.options + ": row " + std::to_string(b) + ": " + std::to_string(loss[b]);
      }
      return std::fabs(mean - expected) <= 1e-6 ? "" : "the mean is " + std::to_string(mean);
    });
    const auto any = [](const float*) { return std::string(); };
    p.changed_objects<float>("lse", std::vector<float>(B), any);
    p.changed_objects<float>("top1", std::vector<float>(B), any);
    p.objects("logits", r.logits), p.objects("mixes", c.mixes);
    p.objects("labels", std::vector<int32_t>(r.labels.begin(), r.labels.end()));
    p.runs(CrossEntropyForward{.shape = {rows(), r.classes}, .smoothing = c.smoothing});
    run(p);
  }
}

INSTANTIATE_TEST_SUITE_P(KernelTable, GoldenMixing, testing::ValuesIn(devices_to_test()),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace bv::test
