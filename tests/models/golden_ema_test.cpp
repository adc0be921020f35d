// Compares the moving average of the weights over 50 updates with that of timm's ModelEmaV3 in
// float64 (tests/golden/training/make_ema.py).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kernels/cpu/backend.h"
#include "tests/files.h"
#include "tests/golden/formula.h"

namespace bv::test::golden {
namespace {

TEST(GoldenEma, FiftyUpdatesAreTimms) {
  const auto file = nlohmann::json::parse(contents("tests/golden/training/ema.json"));
  const auto backend = make_cpu_backend(2, false);
  for (const auto& c : file.at("cases"))
    for (const auto& tensor : file.at("tensors")) {
      const std::string name = tensor.at("name");
      const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
      std::vector<float> weight = parameter(name, shape), ema = weight;
      const uint8_t decay = 0;
      StepParams params{.lr = file.at("lr").get<float>(), .divisor = 1};
      UpdateState state{.grad_divisor = 1, .loss_scale = 1};
      auto expected = c.at("after").begin();
      for (int s = 0; s < 50; ++s) {
        const auto grad = signed_values(name + "/gradient" + std::to_string(s), weight.size());
        ++state.count;
        backend->kernels().run(
            OptimizerUpdate{.weight = weight.data(),
                            .ema = ema.data(),
                            .state = &state,
                            .grad = grad.data(),
                            .decay = &decay,
                            .params = &params,
                            .count = weight.size(),
                            .ema_rate = static_cast<float>(1 - c.at("decay").get<double>()),
                            .kind = OptimizerKind::sgd},
            nullptr);
        backend->synchronize(nullptr);
        if (expected == c.at("after").end() || expected->at("updates") != s + 1) continue;
        const auto want = expected->at(name).get<std::vector<double>>();
        ASSERT_EQ(want.size(), ema.size());
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(ema[i], want[i], 2e-6) << name << " after update " << s + 1;
        ++expected;
      }
      EXPECT_EQ(expected, c.at("after").end());
    }
}

}  // namespace
}  // namespace bv::test::golden
