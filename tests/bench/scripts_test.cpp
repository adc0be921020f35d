// bench/recipes and bench/scaling refuse what can't work before they train for an hour.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/files.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

class BenchScripts : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("bench/recipes")) GTEST_SKIP() << "not in the project's folder";
  }
  void expect_refused(const std::string& command, const std::string& last_line) const {
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    const int status = std::system((command + " >/dev/null 2>" + log).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2) << command;
    EXPECT_TRUE(contents(log).ends_with(last_line)) << command << ": " << contents(log);
  }
};

TEST_F(BenchScripts, RecipesLookForPyTorchFirst) {
  const std::string words = "bench/recipes cifar10_resnet34 --epochs 1 ";
  expect_refused(words + "--data . --python /nowhere/python",
                 "recipes: /nowhere/python has no PyTorch with timm, torchvision and safetensors; "
                 "run: make peers (or give --python)\n");
  expect_refused(words + "--data . --python /bin/false", "run: make peers (or give --python)\n");
  expect_refused(words + "--data /nowhere", "recipes: --data /nowhere: no such folder\n");
  expect_refused("bench/recipes cifar11 --epochs 1 --data .",
                 "recipes: cifar11 is no recipe; ./launcher recipes lists them\n");
}

TEST_F(BenchScripts, ScalingNeedsTwoNodesForALink) {
  expect_refused("bench/scaling --mbit 100", "--mbit must be positive, and needs --nodes 2\n");
  expect_refused("bench/scaling --nodes 2 --mbit 0",
                 "--mbit must be positive, and needs --nodes 2\n");
}

}  // namespace
}  // namespace bv::test
