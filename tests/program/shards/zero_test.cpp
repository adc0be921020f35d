// --zero 1: each process keeps a part of the optimizer state.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "engine/files/checkpoint.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string vit = on_vit + "--data synthetic --batch 8 --save-every 100 ";

class ProgramZero : public ShallowProgramTest {
 protected:
  void expect_same_files(const std::string& run, const std::string& as) const {
    for (const char* file : {"/last/weights.safetensors", "/last/state.safetensors"}) {
      EXPECT_FALSE(contents(in(run) + file).empty());
      EXPECT_TRUE(contents(in(run) + file) == contents(in(as) + file)) << run << file;
    }
  }
};

TEST_F(ProgramZero, AKilledRunResumesOnAnotherNumberWithout) {
  const std::string words = on_vit + "--data synthetic --batch 8 --shards 4 --ema 0.9 ";
  Program run(folder_.path(),
              "-n 4 " + words + "--zero 1 --steps 1000000 --save-every 1steps --out parts");
  ASSERT_TRUE(run.wait_for(in("parts/last/state.json"), "crc32c"));
  kill(run.worker(2), SIGKILL);
  EXPECT_NE(run.wait().code, 0);
  EXPECT_FALSE(run.anyone_left());
  const std::string steps = std::to_string(load_checkpoint(in("parts")).step + 2);
  go("-n 2 --resume parts --zero 0 --save-every 100 --steps " + steps);
  go("-n 1 " + words + "--save-every 100 --out whole --steps " + steps);
  expect_same_files("parts", "whole");
}

TEST_F(ProgramZero, NamesTheFirstGradientIn16Bits) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  const std::string words = "-n 2 " + vit +
                            "--device simt --precision bf16 --steps 20 --lr 1e30 --warmup-epochs 0 "
                            "--timeout 60 --out run ";
  const Finished all = run(words);
  std::filesystem::remove_all(in("run"));  // it has what was written before the error
  const Finished parts = run(words + "--zero 1");
  EXPECT_EQ(all.code, 1) << all.output;
  EXPECT_NE(all.errors.find("not finite"), std::string::npos) << all.errors;
  EXPECT_EQ(parts.errors, all.errors);
}

TEST_F(ProgramZero, NamesTheFirstGradientThatIsNotFinite) {
  for (const std::string processes : {"-n 2 ", "-n 4 --pipeline 2 --micro-batches 1 "}) {
    const std::string words = processes + vit + "--steps 20 --lr 1e30 --warmup-epochs 0 --out run ";
    std::filesystem::remove_all(in("run"));  // it has what was written before the error
    const Finished all = run(words);
    std::filesystem::remove_all(in("run"));
    const Finished parts = run(words + "--zero 1");
    EXPECT_EQ(all.code, 1) << all.output;
    EXPECT_NE(all.errors.find("not finite"), std::string::npos) << all.errors;
    // The next line may differ: it names the rank whose end was seen first.
    const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
    EXPECT_EQ(first_line(parts.errors), first_line(all.errors));
  }
}

TEST_F(ProgramZero, IsRefusedWhereItCantBe) {
  const auto expect_refused = [&](const std::string& words, const std::string& errors) {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, errors) << words;
  };
  expect_refused(
      "-n 2 " + vit + "--zero 1 --all-reduce 2d",
      "--zero 1 gives each process the sum of its own part of the gradients, --all-reduce "
      "2d gives all processes the whole sum; leave out one of the two\n");
  expect_refused(vit + "--zero 2", "--zero 2: must be at least 0 and at most 1\n");
  const Finished alone = go(vit + "--zero 1 --steps 1");
  EXPECT_NE(alone.output.find("--zero 1 has no effect: there is one process"), std::string::npos)
      << alone.output;
  const Finished stages = go("-n 2 " + vit + "--zero 1 --pipeline 2 --steps 1");
  EXPECT_NE(stages.output.find("--zero 1 has no effect: each stage is one process"),
            std::string::npos)
      << stages.output;
}

double planned_bytes(const std::string& plan, const std::string& row) {
  const size_t at = plan.find(row);
  return at == std::string::npos ? -1 : std::strtod(plan.c_str() + at + row.size(), nullptr);
}

TEST_F(ProgramZero, PlansAPart) {
  const std::string all = go(vit + "--ema 0.9 --plan -n 4").output,
                    parts = go(vit + "--ema 0.9 --plan -n 4 --zero 1").output;
  constexpr double block = 65536, buckets = 7;  // each is divided between norm blocks
  EXPECT_EQ(planned_bytes(parts, "\nweights"), planned_bytes(all, "\nweights"));
  for (const auto& [row, arenas] : {std::pair{"optimizer state", 2}, {"average of weights", 1}}) {
    const double whole = planned_bytes(all, row);
    EXPECT_GT(whole, 0) << row;
    EXPECT_GE(planned_bytes(parts, row), whole / 4);
    EXPECT_LE(planned_bytes(parts, row), whole / 4 + arenas * buckets * block);
  }
}

TEST_F(ProgramZero, PlansAPartOfTheMasterWeights) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  const std::string words = vit + "--device simt --precision bf16 --plan -n 4 ";
  const std::string all = go(words).output, parts = go(words + "--zero 1").output;
  constexpr double block = 65536, buckets = 7;
  const double whole = planned_bytes(all, "\nweights"), own = planned_bytes(parts, "\nweights");
  EXPECT_GE(own, whole / 4);
  EXPECT_LE(own, whole / 4 + buckets * block + 200000);  // norms, tokens and positions
  EXPECT_EQ(planned_bytes(parts, "16-bit copy of weights"),
            planned_bytes(all, "16-bit copy of weights"));
}

}  // namespace
}  // namespace bv::test
