// bench names a wrong argument in one line, before it measures anything.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

TEST(KernelBench, MistakesAreOneLineThatNamesThem) {
  const std::string bench = std::filesystem::path(own_path()).parent_path() / "bench";
  if (!std::filesystem::exists(bench)) GTEST_SKIP() << "not built: make bench";
  const auto expect = [&](const std::string& words, const std::string& line) {
    FILE* pipe = popen((bench + " " + words + " 2>&1").c_str(), "r");
    std::string text(4000, '\0');
    text.resize(fread(text.data(), 1, text.size(), pipe));
    const int status = pclose(pipe);
    EXPECT_EQ(WEXITSTATUS(status), 2) << words << ": " << text;
    EXPECT_EQ(text, "bench: " + line + "\n") << words;
  };
  expect("--filtr x", "unknown option --filtr (did you mean --filter?); bench --help lists all");
  expect("conv", "unexpected argument 'conv'; bench --help lists the options");
  expect("--batch 0", "--batch 0: must be a whole number from 1 to 4096");
  expect("--image-size 64x64", "--image-size 64x64: must be a whole number from 1 to 4096");
  expect("--dtype int8", "--dtype int8: must be one of fp32, fp16, bf16");
  expect("--kernels plane", "--kernels plane: must be one of auto, plain, hopper");
  expect("--kernels hopper", "--kernels hopper: these are GPU kernels; --device cuda");
  expect("--device simt", "--device simt: must be one of cpu, cuda");
  expect("--seconds 0", "--seconds 0: must be a number of more than 0");
  expect("--seconds", "--seconds needs a value");
  expect("--json x.json", "--json needs --model: the file has one model's table");
  expect("--model vit_tny --batch 2",
         "unknown model 'vit_tny' (did you mean vit_tiny?); available: resnet101, resnet152, "
         "resnet18, resnet34, resnet50, resnext50_32x4d, vit_base, vit_large, vit_large_distilled, "
         "vit_small, vit_tiny, vit_tiny_distilled");
  expect("--model vit_tiny --filter nosuch",
         "--filter nosuch: no operation of vit_tiny has nosuch in its name");
  expect("--filter nosuch", "--filter nosuch: no operation of the models has nosuch in its name");
}

}  // namespace
}  // namespace bv::test
