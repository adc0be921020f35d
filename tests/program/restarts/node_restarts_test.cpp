// --max-restarts on several machines (nodes): one launcher per node, all on this machine.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/processes/world.h"
#include "engine/files/checkpoint.h"
#include "tests/comm/network.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string on_random = on_vit + "--data synthetic --batch 12 --device cpu ";
const std::string endless = on_random + "--steps 1000000 --save-every 2steps --resume auto --out ";

class NodeRestarts : public ProgramTest {
 protected:
  void SetUp() override { change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2"); }

  void start(int node, const std::string& words) {
    launchers_[size_t(node)] = std::make_unique<Program>(
        folder_.path(), "--nnodes 2 --master-addr 127.0.0.1 --node-rank " + std::to_string(node) +
                            " --master-port " + std::to_string(port_) + " " + words);
  }
  void start_both(const std::string& words) {
    for (const int node : {0, 1}) start(node, words);
  }
  Program& node(int n) const { return *launchers_[size_t(n)]; }

  void wait_for_steps() const {
    ASSERT_TRUE(node(0).wait_for(in("run/last/state.json"), "crc32c"));
  }
  // Waits until this many restarts are in the run's log, and a further step.
  void wait_for_restart(int number) const {
    const auto steps_after = [&] {
      const std::string log = contents(in("run/metrics.jsonl"));
      const size_t at = log.find("\"restart\":" + std::to_string(number) + ",");
      return at != log.npos && log.find("\"kind\":\"step\"", at) != log.npos;
    };
    ASSERT_TRUE(wait_until([&] { return steps_after() || node(0).has_ended(); }) && steps_after());
  }
  // Stops the run, expects the bytes of one that nobody disturbed, and its port to be free. Returns
  // each node's errors.
  std::vector<std::string> expect_undisturbed() {
    kill(node(0).pid(), SIGTERM);
    std::vector<std::string> errors;
    for (const int n : {0, 1}) {
      const Finished end = node(n).wait();
      EXPECT_EQ(end.code, 128 + SIGTERM) << end.errors;
      EXPECT_FALSE(node(n).anyone_left());
      errors.push_back(end.errors);
    }
    const Socket listener = listen_on(port_);
    EXPECT_TRUE(listener) << "the port is still taken";
    const int64_t step = load_checkpoint(in("run")).step;
    std::filesystem::remove_all(in("whole"));
    go("-n 2 " + on_random + "--steps " + std::to_string(step) + " --out whole");
    EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
                contents(in("whole/last/weights.safetensors")));
    for (const char* member : {"step", "loss"})
      EXPECT_EQ(metric(in("run"), "step", member), metric(in("whole"), "step", member));
    return errors;
  }
  static Socket listen_on(int port) {
    Socket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = loopback(port);
    const bool listens =
        bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        listen(made.fd(), 1) == 0;
    return listens ? std::move(made) : Socket();
  }
  // "rank 1 (node 1, HOST)"
  static std::string name(int rank) {
    return "rank " + std::to_string(rank) + " (node " + std::to_string(rank) + ", " +
           name_of_machine() + ")";
  }

  const int port_ = free_port() + 1;
  const std::string words_ = "-n 1 " + endless + "run --max-restarts 100 ";
  std::unique_ptr<Program> launchers_[2];
};

TEST_F(NodeRestarts, AProcessThatIsKilled) {
  start_both(words_);
  wait_for_steps();
  kill(node(1).worker(1), SIGKILL);
  wait_for_restart(1);
  const std::string cause = name(1) + " was killed by SIGKILL (out of memory?)";
  EXPECT_EQ(last_metric(in("run"), "restart", "cause"), cause);
  EXPECT_EQ(last_metric(in("run"), "restart", "rank"), "1");
  kill(node(0).worker(0), SIGKILL);
  wait_for_restart(2);
  const auto errors = expect_undisturbed();
  EXPECT_TRUE(has(errors[1], "restart 1 of 100 in 1 s; the run ended in step ")) << errors[1];
  EXPECT_TRUE(has(errors[1], cause)) << errors[1];
  EXPECT_TRUE(has(errors[0], name(1) + " has died")) << errors[0];
}

TEST_F(NodeRestarts, ALauncherThatIsKilledAndStartedAgain) {
  start_both(words_);
  wait_for_steps();
  int restarts = 0;
  for (const int n : {1, 0}) {
    kill(node(n).pid(), SIGKILL);
    EXPECT_EQ(node(n).wait().code, 128 + SIGKILL);
    EXPECT_FALSE(node(n).anyone_left());
    start(n, words_);
    wait_for_restart(++restarts);
    EXPECT_TRUE(has(last_metric(in("run"), "restart", "cause"), name(n) + " has died"));
  }
  expect_undisturbed();
}

TEST_F(NodeRestarts, ALauncherThatIsKilledForGood) {
  start_both("-n 2 " + endless + "run --max-restarts 100 --timeout 1");
  wait_for_steps();
  kill(node(1).pid(), SIGKILL);
  const Finished end = node(0).wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors,
                  "node 1 (ranks 2-3) has not come within 10 s (ten times --timeout); "
                  "start ./launcher on every node"))
      << end.errors;
  EXPECT_FALSE(node(0).anyone_left());
}

TEST_F(NodeRestarts, AProcessThatHangs) {
  start_both(words_ + "--timeout 2 ");
  wait_for_steps();
  kill(node(1).worker(1), SIGSTOP);
  wait_for_restart(1);
  EXPECT_TRUE(has(last_metric(in("run"), "restart", "cause"),
                  name(1) + " has given no sign of life for 2 s (--timeout)"));
  expect_undisturbed();
}

TEST_F(NodeRestarts, EndOnAllNodesTogether) {
  const std::string diverging =
      "-n 1 " + on_random +
      "--steps 9 --optimizer sgd --warmup-epochs 0 --lr 1e30 --save-every 1steps --out ";
  start_both(diverging + "run --max-restarts 5");
  for (const int n : {0, 1}) {
    const Finished end = node(n).wait();
    EXPECT_EQ(end.code, 1);
    EXPECT_TRUE(has(end.errors, ": the run has ended in step 2 for the second time")) << end.errors;
  }
  start_both(diverging + "other --max-restarts 1 --steps 3");
  for (const int n : {0, 1}) {
    const Finished end = node(n).wait();
    EXPECT_EQ(end.code, 1);
    EXPECT_FALSE(has(end.errors, "restart 2")) << end.errors;
  }
}

TEST_F(NodeRestarts, ANodeThatComesBackWithOtherDataIsRefused) {
  start_both(words_);
  wait_for_steps();
  kill(node(1).pid(), SIGKILL);
  node(1).wait();
  make_cifar(in("cifar"));
  start(1, words_ + "--data cifar");
  const Finished end = node(1).wait();
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.errors, "--data can't be changed with --resume: the run has synthetic"));
  start(1, words_);
  wait_for_restart(1);
  expect_undisturbed();
}

// A mistake that one node's processes find ends the others, too, which can't know of it.
TEST_F(NodeRestarts, AMistakeOnOneNodeEndsAll) {
  const std::string words =
      "-n 1 " + on_vit + "--device cpu --steps 2 --timeout 2 --out run --max-restarts 3 --data ";
  start(0, words + "synthetic");
  start(1, words + "nowhere");
  for (const int n : {0, 1}) {
    const Finished end = node(n).wait();
    EXPECT_EQ(end.code, 2) << end.errors;
    EXPECT_TRUE(has(end.errors, "nowhere")) << end.errors;
    EXPECT_FALSE(has(end.errors, "restart 2")) << end.errors;
  }
}

TEST_F(NodeRestarts, NeedAFolder) {
  const Finished end = run("--nnodes 2 --master-addr 127.0.0.1 -n 1 --max-restarts 3 " + on_random);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors,
            "--max-restarts with --nnodes 2 needs --out DIR, the same on all, on a disk that all "
            "nodes share\n");
}

TEST_F(NodeRestarts, ALauncherStopsWhileItWaitsForTheOthers) {
  for (const int n : {0, 1}) {
    start(n, words_);
    usleep(300000);
    kill(node(n).pid(), SIGTERM);
    EXPECT_EQ(node(n).wait().code, 128 + SIGTERM);
    EXPECT_FALSE(node(n).anyone_left());
  }
}

// A process, a launcher or a whole node, at random moments; a launcher that ends is started again
// by the same command. BAREVISION_CHAOS_SEED repeats them.
TEST_F(NodeRestarts, KilledAtRandomMoments) {
  const char* given = std::getenv("BAREVISION_CHAOS_SEED");
  const unsigned seed = given && *given ? unsigned(std::atoi(given)) : unsigned(getpid());
  SCOPED_TRACE("BAREVISION_CHAOS_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  const int moments = std::getenv("BAREVISION_TEST_ALL") ? 60 : 3;
  const std::string words = words_ + "--timeout 5 ";
  start_both(words);
  const auto start_what_ended = [&] {
    for (const int n : {0, 1}) {
      if (!node(n).has_ended()) continue;
      EXPECT_NE(node(n).wait().code, 2);
      EXPECT_FALSE(node(n).anyone_left());
      start(n, words);
    }
  };
  for (int i = 0; i < moments; ++i) {
    usleep(unsigned(below(3000000)));
    start_what_ended();
    const int n = below(2), act = i < 3 ? i : below(3);
    if (act == 0)
      if (const auto worker = node(n).worker_now(n)) kill(*worker, SIGKILL);
    if (act > 0) kill(act == 1 ? node(n).pid() : -node(n).pid(), SIGKILL);
  }
  // Whatever happened last, it trains again.
  const auto steps = [&] { return metric(in("run"), "step", "step").size(); };
  const size_t before = std::filesystem::exists(in("run/metrics.jsonl")) ? steps() : 0;
  EXPECT_TRUE(wait_until([&] {
    start_what_ended();
    return std::filesystem::exists(in("run/metrics.jsonl")) && steps() > before + 5;
  }));
  expect_undisturbed();
}

}  // namespace
}  // namespace bv::test
