// The whole program in bf16 on the cpu: close to fp32, and the same bits if a run is interrupted.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/emulated_bf16.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

// Five updates per epoch.
const std::string words = on_vit +
                          "--data cifar --batch 8 --micro-batches 2 --epochs 2 --warmup-epochs 0 "
                          "--ema .9 --drop-rate .1 ";

class ProgramBf16 : public ProgramTest {
 protected:
  void SetUp() override {
    if (const std::string why = emulated_.lack(); !why.empty()) GTEST_SKIP() << why;
    make_cifar(in("cifar"));
  }
  void expect_same_end(const std::string& a, const std::string& b) const {
    for (const std::string file : {"weights", "ema", "state"}) {
      const std::string path = "/last/" + file + ".safetensors";
      EXPECT_TRUE(contents(in(a + path)) == contents(in(b + path))) << a << ", " << b << path;
    }
    EXPECT_EQ(metric(in(a), "step", "loss"), metric(in(b), "step", "loss")) << b;
    for (const char* member : {"val_loss", "ema_loss"})
      EXPECT_EQ(last_metric(in(a), "epoch", member), last_metric(in(b), "epoch", member)) << b;
  }
  void expect_near(const std::string& a, const std::string& b, double tolerance) const {
    const auto got = losses(in(a)), want = losses(in(b));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << a << ", step " << i + 1;
  }

  const EmulatedBf16 emulated_;
};

TEST_F(ProgramBf16, TheSameBitsResumedAndInStages) {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2");
  go(words + "--precision bf16 --out whole");
  EXPECT_EQ(last_metric(in("whole"), "step", "loss_scale"), "1");
  go(words + "--precision bf16 --steps 3 --out cut");
  go("--resume cut --steps 10");
  expect_same_end("whole", "cut");
  go("-n 2 --pipeline 2 " + words + "--precision bf16 --out stages");
  expect_same_end("whole", "stages");
}

TEST_F(ProgramBf16, NearFp32AndOnTwoProcesses) {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2");
  const std::string by_sgd = words + "--optimizer sgd --lr .02 ";
  go(by_sgd + "--precision bf16 --out one");
  go("-n 2 " + by_sgd + "--precision bf16 --out two");
  expect_near("two", "one", 1e-3);
  go(by_sgd + "--precision fp32 --out fp32");
  expect_near("one", "fp32", .01);
  EXPECT_NE(losses(in("one")), losses(in("fp32")));
}

TEST_F(ProgramBf16, OfAResnetToo) {
  change_model("resnet34", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  const std::string resnet =
      "resnet34 --data cifar --log-every 1 --batch 12 --lr 1e-3 --steps 3 --epochs 1 ";
  go(resnet + "--precision bf16 --out bf16");
  go(resnet + "--precision fp32 --out fp32");
  expect_near("bf16", "fp32", .02);
  EXPECT_NE(losses(in("bf16")), losses(in("fp32")));
}

}  // namespace
}  // namespace bv::test
