// bench/roofline writes its tables, and refuses each malformed file in one line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

const std::string vit_tiny = "tests/counters/vit_tiny.txt",
                  resources = "tests/kernels/resources.txt", page = "bench/ROOFLINE.md",
                  measured = "bench/results/h100-steps.json", profile = "bench/results/kernels.txt";
const std::string held =
    "# kernel      sm_80 threads shared blocks sm_90a threads shared blocks\n"
    "copy<float>      32     256      0      8     32     256      0      4\n";

std::string counters(const std::string& model) {
  const std::string kernels =
      "kernel  runs\nbv::copy<float>  2 10 16.00 100 0 1.00 1000.00 0 0.00 0 0 0 0 0 0 0\n";
  return "# What the GPU's kernels do in a training step. g++ 12.2. Written by: make counters\n\n"
         "step: " +
         model + ", bf16, 224 pixels, batch 4, 1 multiprocessor\n\n" + kernels +
         "\noperation shape\n"
         "LinearForward  M784 N192 K768  1 1 0.231 1.801 1.801 1.000\n"
         "all runs of the step  2 0.231 1.8 1.8 1.000\n\n"
         "why copy<float> has conflicts: its stores meet in a bank\n\n"
         "the same: " +
         model +
         ", bf16, 224 pixels, batch 512, 128 multiprocessors: 2 launches, "
         "1.00 GB; 3 multiprocessors +0.005% off the line\n\n" +
         kernels;
}

const std::string steps_measured =
    R"({"machine": "H100", "commit": "abc", "steps": [
 {"model": "vit_tiny", "batch": 512, "images_per_second": 256000,
  "kernels": {"batch": 256, "table": "kernels.txt"}},
 {"model": "vit_tiny", "batch": 8, "images_per_second": 1}]})";
// Three launches, in a window that is longer than a step.
const std::string kernels_measured =
    "# a machine\n3 launches\nkernel  n  us\ncopy<float>  3  900.0\ncopy<other, 1>  1  5.0\n";

class Roofline : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("bench/roofline")) GTEST_SKIP() << "not started in the checkout";
    std::filesystem::create_directory(folder_ / "bench");
    for (const char* file : {"bench/roofline", "bench/measure.py"})
      std::filesystem::copy_file(file, folder_ / file);
    write_text(folder_ / "tests/counters/resnet50.txt", counters("resnet50"));
    write_text(folder_ / vit_tiny, counters("vit_tiny"));
    write_text(folder_ / resources, held);
    write_text(folder_ / measured, steps_measured);
    write_text(folder_ / profile, kernels_measured);
    write_text(folder_ / "compiler/g++", "#!/bin/sh\necho 12.2.0\n");
    std::filesystem::permissions(folder_ / "compiler/g++", std::filesystem::perms::owner_all);
  }
  // Returns the output; the exit code is in code_.
  std::string said(const std::string& words = "") const {
    const std::string call = "cd " + folder_.path() +
                             " && PATH=$PWD/compiler:$PATH bench/roofline " + words + " >said 2>&1";
    code_ = std::system(call.c_str()) / 256;
    return contents(folder_ / "said");
  }
  // Expects the output to end with `line` if a file has `text`.
  void expect_refused(const std::string& file, const std::string& text,
                      const std::string& line) const {
    write_text(folder_ / file, text);
    EXPECT_EQ(said(), "roofline: " + line + "\n");
    EXPECT_EQ(code_, 2);
  }
  TemporaryFolder folder_;
  mutable int code_ = 0;
};

TEST_F(Roofline, WritesItsTablesIntoThePage) {
  write_text(folder_ / "tests/counters/vit_tiny-sm_90.txt", "of another chip: not read\n");
  write_text(folder_ / page,
             "before\n<!-- predicted: written by bench/roofline --update -->\n"
             "<!-- end of predicted -->\nafter\n");
  EXPECT_EQ(said("--update"), "");
  const std::string text = contents(folder_ / page);
  // 1 GB at 3.35 TB/s * 0.9; 512 / 256000 s; two runs of 300 us each at half the batch.
  EXPECT_TRUE(has(text, "| vit_tiny | 512 | 2 | H100 | 0.3 | 0.4 | 1,149,")) << text;
  EXPECT_TRUE(has(text, " | 2.0 | 256,000 | 22% |\n")) << text;
  EXPECT_TRUE(has(text, "| vit_tiny | 512 | 2 | A100 | 0.5 | 0.7 | 702,124 | - | - | - |")) << text;
  EXPECT_TRUE(has(text, "| `copy<float>` | 1.00 | 0.00 | 64 | 32 | 3.47 memory |")) << text;
  EXPECT_TRUE(has(text, " | 0.33 memory | 1.20 | ")) << text;
  EXPECT_TRUE(has(text, "H100 measured: ms at batch 256, times 2")) << text;
  EXPECT_TRUE(has(text, "<!-- end of predicted -->\nafter\n")) << text;
  write_text(folder_ / page, "before\n");
  EXPECT_EQ(said("--update"),
            "roofline: bench/ROOFLINE.md: the marks of its predicted part are gone; "
            "renew it by: git checkout bench/ROOFLINE.md\n");
  EXPECT_EQ(said("sm_99"), "roofline: sm_99: no such option; usage: bench/roofline [--update]\n");
  EXPECT_EQ(code_, 2);
}

// In a cycle, at 1.755 GHz, each of 132 SMs reads 32 bytes from L2, or computes 4096 flops.
TEST_F(Roofline, CountsTmaAndWgmmaOfHoppersKernels) {
  const std::string file = "tests/counters/vit_tiny-hopper.txt";
  const std::string product = "sm90_product<Product<half, A, B, C, ...> >";
  const auto counted = [&](const std::string& gflop) {
    return replaced(replaced(counters("vit_tiny"), "bv::copy<float>", product), "bv::copy<float>",
                    product) +
           "\nkernel with TMA  MB loaded\n" + product +
           "  2000.00 100 0.00 0 9 8\n\nkernel with wgmma  GFLOP\n" + product + "  " + gflop +
           " 70 0  64:10 128:2\n";
  };
  write_text(folder_ / file, counted("94.884"));
  std::string text = said();
  EXPECT_TRUE(has(text, "| vit_tiny --kernels hopper | 512 | 2 | H100 | 0.3 |")) << text;
  EXPECT_FALSE(has(text, "hopper | 512 | 2 | A100")) << text;
  EXPECT_TRUE(has(text, "...>>` | 1.00 | 0.02 | - | - | 0.33 memory | 0.27 L2 |")) << text;
  write_text(folder_ / file, counted("948.84"));
  text = said();
  EXPECT_TRUE(has(text, "...>>` | 1.00 | 0.23 | - | - | 1.00 tensor | 1.00 tensor |")) << text;
  expect_refused(file, replaced(counted("1"), "9 8\n", "9\n"),
                 file +
                     ":20: not a line of counters; renew it by: make counters UPDATE=1 "
                     "ARCH=sm_90 KERNELS=hopper");
}

TEST_F(Roofline, ThePageIsOfTheTablesOfToday) {
  for (const char* file :
       {"tests/counters/resnet50.txt", "tests/counters/vit_tiny.txt",
        "tests/counters/vit_large.txt", "tests/counters/resnet34-hopper.txt",
        "tests/counters/resnet50-hopper.txt", "tests/counters/resnext50_32x4d-hopper.txt",
        "tests/counters/vit_large-hopper.txt", "tests/counters/vit_tiny-hopper.txt",
        "tests/kernels/resources.txt", "bench/ROOFLINE.md"})
    write_text(folder_ / file, contents(file));
  std::filesystem::copy(
      "bench/results", folder_ / "bench/results",
      std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
  EXPECT_EQ(said("--update"), "");
  EXPECT_EQ(contents(folder_ / page), contents(page)) << "bench/roofline --update";
}

TEST_F(Roofline, RefusesCountersThatMakeCountersDoesNotWriteSo) {
  const std::string table = counters("vit_tiny"), renew = "; renew it by: make counters UPDATE=1";
  const size_t last = table.rfind("bv::copy");
  expect_refused(vit_tiny, "garbage\n", vit_tiny + ": not a table of counters" + renew);
  expect_refused(vit_tiny, replaced(table, "g++ 12.2", "g++ 11.4"),
                 vit_tiny + ": of a build by g++ 11.4, not 12.2" + renew);
  expect_refused(vit_tiny, replaced(table, "\nkernel", "\n\xff\xfe"),
                 vit_tiny + ":5: not a line of counters" + renew);
  expect_refused(vit_tiny, table.substr(0, last + 30),
                 vit_tiny + ":17: not a line of counters" + renew);
  expect_refused(vit_tiny, table.substr(0, last),
                 vit_tiny + ": no kernels of the large step" + renew);
  expect_refused(vit_tiny, table.substr(0, table.find("the same")),
                 vit_tiny + ": no step of a large GPU" + renew);
  expect_refused(vit_tiny, counters("resnet50"), vit_tiny + ": not the step of vit_tiny" + renew);
  std::filesystem::remove(folder_ / vit_tiny);
  EXPECT_EQ(said(), "roofline: " + vit_tiny + ": No such file or directory" + renew + "\n");
  EXPECT_EQ(code_, 2);
}

TEST_F(Roofline, RefusesResourcesWithoutAnArchitectureOrAKernel) {
  const std::string renew = "; renew it by: make resources UPDATE=1";
  expect_refused(resources, replaced(held, "sm_90a", "sm_100"),
                 resources + ": no columns of sm_90a" + renew);
  expect_refused(resources, replaced(held, "copy", "other"),
                 resources + ": no line of copy<float>" + renew);
  expect_refused(resources, held + "garbage\n", resources + ":3: not a line of resources" + renew);
  std::filesystem::remove(folder_ / resources);
  EXPECT_EQ(said(), "roofline: " + resources + ": No such file or directory" + renew + "\n");
  EXPECT_EQ(code_, 2);
}

TEST_F(Roofline, RefusesMeasurementsThatAreNone) {
  const std::string renew = "; renew it by: git checkout ";
  expect_refused(measured, "garbage\n",
                 measured + ": not steps that were measured" + renew + measured);
  expect_refused(measured, replaced(steps_measured, "machine", "device"),
                 measured + ": not steps that were measured" + renew + measured);
  write_text(folder_ / measured, steps_measured);
  expect_refused(profile, replaced(kernels_measured, "900.0", "many"),
                 profile + ":4: not a line of kernels" + renew + profile);
  std::filesystem::remove(folder_ / profile);
  EXPECT_EQ(said(),
            "roofline: " + profile + ": No such file or directory" + renew + profile + "\n");
  EXPECT_EQ(code_, 2);
}

}  // namespace
}  // namespace bv::test
