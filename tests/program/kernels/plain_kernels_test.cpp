// --kernels plain, the kernels that compute one output per thread: what is said of them, and an
// evaluation.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class PlainKernels : public ProgramTest {
 protected:
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line)) << words;
  }
};

TEST_F(PlainKernels, AreRefusedWhereTheDeviceHasNone) {
  const std::string words = "resnet34 --data synthetic --kernels plain --out a ";
  expect_refused(words + "--device cpu", "--kernels plain: these are GPU kernels");
  expect_refused(words + "--device simt --conv cudnn", "--conv cudnn asks for other convolutions");
  expect_refused(words + "--device simt --kernels plane",
                 "--kernels plane: must be one of auto, plain, hopper");
  EXPECT_FALSE(std::filesystem::exists(in("a")));
}

TEST_F(PlainKernels, EvaluateAndPredictToo) {
  make_cifar(in("cifar"));
  make_class_folders(in("photos"), 2, 2);
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 1");
  go(on_vit + "--data cifar --batch 6 --steps 2 --device simt --out run");
  const auto loss_of = [&](const std::string& words) {
    return parse_json_object(go("eval run --device simt --json" + words).output, "eval")["loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss_of(" --kernels plain"), loss_of(""), 1e-5);
  EXPECT_TRUE(has(go("eval run --device simt --kernels plain").output, "\nkernels: plain\n"));
  EXPECT_FALSE(has(go("eval run --device simt").output, "kernels:"));
  EXPECT_TRUE(has(go("predict run photos --device simt --kernels plain").errors, "kernels: plain"));
  expect_refused("eval run --device cpu --kernels plain", "--kernels plain");
  // On another device, the run's --kernels is ignored.
  EXPECT_TRUE(has(go("--resume run --steps 3 --kernels plain").output, "\nkernels: plain\n"));
  go("eval run --device cpu");
}

}  // namespace
}  // namespace bv::test
