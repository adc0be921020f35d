// The whole program on the stand-in for CUDA: the cuda backend's graphs, loss scaling and NCCL
// calls, without a GPU. The model is vit_tiny's first two blocks, for speed.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "comm/processes/world.h"
#include "engine/files/checkpoint.h"
#include "kernels/devices/devices.h"
#include "tests/comm/network.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string on_cifar = on_vit + "--data cifar --batch 6 --schedule constant ";
const std::string on_simt = on_cifar + "--device simt ";
const std::string endless_on_simt =
    on_vit + "--data synthetic --batch 2 --steps 100000 --device simt --out run --timeout ";

class ProgramOnSimt : public ProgramTest {
 protected:
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
    make_cifar(in("cifar"));
    change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2");
  }
  void expect_near(const std::string& a, const std::string& b, double tolerance) const {
    const std::vector<double> got = losses(in(a)), want = losses(in(b));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], tolerance * std::abs(want[i])) << a << ", step " << i + 1;
  }
};

TEST_F(ProgramOnSimt, TrainsInFp16AndResumesOnTheCpuAndBack) {
  const std::string words = on_simt + "--precision fp16 --lr 1e-3 --epochs 2 ";
  go(words + "--steps 2 --out run");
  EXPECT_EQ(metric(in("run"), "step", "loss_scale"), (std::vector<std::string>{"65536", "65536"}));
  EXPECT_EQ(load_checkpoint(in("run")).update.loss_scale, 65536);
  go("--resume run --steps 4 --device cpu --precision fp32");
  EXPECT_EQ(metric(in("run"), "step", "loss_scale").back(), "1");
  go("--resume run --steps 6 --device simt --precision fp16");
  EXPECT_EQ(metric(in("run"), "step", "loss_scale").back(), "65536");
  EXPECT_EQ(losses(in("run")).size(), 6u);
  go(on_simt + "--lr 1e-3 --epochs 2 --steps 6 --precision fp32 --out fp32");
  expect_near("run", "fp32", 0.02);
}

// The device's memory consists of the planned memory and a few counters of the kernels.
TEST_F(ProgramOnSimt, MeasuresWhatThePlanAllocates) {
  go(on_simt + "--steps 2 --epochs 2 --out run");
  const auto last = [&](const char* key) {
    return std::stod(metric(in("run"), "epoch", key).back());
  };
  const double planned = last("peak_memory_bytes"), peak = last("device_peak_memory_bytes");
  EXPECT_GE(peak, planned);
  EXPECT_NEAR(peak, planned, .01 * planned);
  EXPECT_GE(last("device_memory_bytes"), peak);  // includes memory that isn't planned
  EXPECT_NEAR(last("device_memory_bytes"), planned, .02 * planned);
}

// Starts one rank on each of two machines, like torchrun.
std::vector<std::unique_ptr<Program>> two_machines(const std::string& folder,
                                                   const std::string& words) {
  std::vector<std::unique_ptr<Program>> machines;
  const std::string port = std::to_string(free_port());
  for (const std::string rank : {"0", "1"}) {
    ProgramOptions options;
    options.environment = {{"RANK", rank},        {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", "0"},   {"LOCAL_WORLD_SIZE", "1"},
                           {"MASTER_PORT", port}, {"MASTER_ADDR", "127.0.0.1"}};
    machines.push_back(std::make_unique<Program>(folder, words, options));
  }
  return machines;
}

TEST_F(ProgramOnSimt, TrainsOnSeveralMachinesAsOnOne) {
  const std::string words = on_simt + "--precision fp16 --lr 1e-3 --steps 3 --epochs 1 ";
  for (const auto& machine : two_machines(folder_.path(), words + "--out two")) {
    const Finished end = machine->wait();
    EXPECT_EQ(end.code, 0) << end.errors;
  }
  go("-n 2 " + words + "--out one");
  EXPECT_TRUE(contents(in("one/last/weights.safetensors")) ==
              contents(in("two/last/weights.safetensors")));
}

TEST_F(ProgramOnSimt, AnotherMachineThatDiesOrStops) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto two =
        two_machines(folder_.path(), on_vit + "--data synthetic --batch 2 --steps 100000 " +
                                         "--device simt --out run" + std::to_string(signal) +
                                         (signal == SIGKILL ? " --timeout 3600" : " --timeout 2"));
    ASSERT_TRUE(
        two[0]->wait_for(in("run" + std::to_string(signal) + "/metrics.jsonl"), "\"step\":2,"));
    kill(two[1]->pid(), signal);
    const Finished end = two[0]->wait();
    EXPECT_EQ(end.code, 1);
    const std::string who = "rank 0: rank 1 (node 1, " + name_of_machine() + ") has ";
    EXPECT_EQ(end.errors, who + (signal == SIGKILL ? "died, or its machine can't be reached\n"
                                                   : "not answered for 2 s (--timeout)\n"));
    kill(two[1]->pid(), SIGKILL);
  }
}

TEST_F(ProgramOnSimt, TellsWhereTimeWent) {
  const Finished end = go(on_simt + "--profile --steps 2 --epochs 1 --out run");
  EXPECT_TRUE(has(end.output, "attention "));
}

TEST_F(ProgramOnSimt, AnUnknownChip) {
  setenv("SIMT_ARCH", "sm_70", 1);
  const Finished end = run(on_simt + "--out run");
  unsetenv("SIMT_ARCH");
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.errors, "SIMT_ARCH=sm_70: unknown chip; known are sm_75"));
  EXPECT_FALSE(std::filesystem::exists(in("run")));
}

TEST_F(ProgramOnSimt, AGradientThatStaysNotFiniteEndsTheRun) {
  const Finished end = run(on_simt + "--precision fp16 --lr 1e30 --epochs 10 --out run");
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors, "consecutive steps"));
  EXPECT_TRUE(has(end.errors, "the first such gradient of step "));
}

TEST_F(ProgramOnSimt, ARankThatDiesOrHangsInACollective) {
  for (const std::string fault : {"die", "hang"}) {
    std::filesystem::remove_all(in("run"));
    setenv("SIMT_NCCL_FAULT", (fault + ":1:7").c_str(), 1);
    // A death is detected without a timeout.
    Program run(folder_.path(), "-n 2 " + endless_on_simt + (fault == "die" ? "3600" : "2"));
    unsetenv("SIMT_NCCL_FAULT");
    const Finished end = run.wait();
    EXPECT_EQ(end.code, fault == "die" ? 128 + SIGKILL : 1);
    if (fault == "die")
      EXPECT_EQ(end.errors, "rank 1 was killed by SIGKILL (out of memory?)\n");
    else
      EXPECT_TRUE(has(end.errors, "answered for 2 s (--timeout)"));
    EXPECT_FALSE(run.anyone_left());
  }
}

// Sets a variable in the environment of the following runs.
struct Variable {
  const char* name;
  Variable(const char* n, const char* value) : name(n) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  Variable(const Variable&) = delete;
};

TEST_F(ProgramOnSimt, ARankThatHangsWhenAllIsDone) {
  const Variable fault("SIMT_NCCL_FAULT", "hang:1:0");
  const Finished end = run("-n 2 " + on_simt + "--steps 1 --epochs 1 --timeout 2 --out run");
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors, "answered for 2 s (--timeout)")) << end.errors;
}

// Simulates a driver that compiles every kernel at its first use.
TEST_F(ProgramOnSimt, ARankMayTakeLongForItsFirstUpdate) {
  const std::string words = "-n 2 " + on_simt + "--steps 3 --epochs 1 --timeout 2 --out ";
  const Variable slow_start("SIMT_STARTS_SLOWLY", "1");
  {
    const Variable fault("SIMT_NCCL_FAULT", "slow:1:1");
    go(words + "first");
  }
  const Variable fault("SIMT_NCCL_FAULT", "slow:1:20");
  const Finished end = run("-n 2 " + endless_on_simt + "2");  // without a save before the fault
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors, "answered for 2 s (--timeout)")) << end.errors;
}

// With three ranks, the order of a sum, set by SIMT_NVSWITCH, shows in its last bits.
TEST_F(ProgramOnSimt, EqualRunsGiveEqualBitsBesideAnNvswitch) {
  // With SGD: Adam's first steps depend only on a gradient's sign.
  const std::string words =
      "-n 3 " + on_simt + "--optimizer sgd --lr .1 --steps 2 --epochs 1 --out ";
  const auto output_of = [&](const char* order, const std::string& name) {
    const Variable machine("SIMT_NVSWITCH", order);
    return go(words + name).output;
  };
  const auto weights = [&](const std::string& name) {
    return contents(in(name + "/last/weights.safetensors"));
  };
  const std::string line =
      "NCCL_NVLS_ENABLE=1 in the environment: where an NVSwitch adds gradients, equal runs may "
      "differ in their last bits";
  EXPECT_FALSE(has(output_of("1", "a"), "NVSwitch"));
  output_of("2", "b");
  EXPECT_TRUE(weights("a") == weights("b"));
  const Variable user("NCCL_NVLS_ENABLE", "1");
  EXPECT_TRUE(has(output_of("1", "c"), line));
  output_of("2", "d");
  EXPECT_FALSE(weights("c") == weights("d"));
}

TEST_F(ProgramOnSimt, ARankThatIsStopped) {
  Program run(folder_.path(), "-n 2 " + endless_on_simt + "2");
  const pid_t victim = run.worker(1);
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(victim, SIGSTOP);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors, "rank 0: rank 1 has not answered for 2 s (--timeout)\n"));
  EXPECT_FALSE(run.anyone_left());
}

}  // namespace
}  // namespace bv::test
