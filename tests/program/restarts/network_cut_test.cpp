// The network between two nodes is cut in mid-run, with --max-restarts. Each node is a network
// namespace, which needs root, CAP_NET_ADMIN and iproute2.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "tests/program/restarts/node_runs.h"

namespace bv::test {
namespace {

bool ip(const std::string& words) {
  return std::system(("ip " + words + " >/dev/null 2>&1").c_str()) == 0;
}

class NetworkCut : public NodeRuns {
 protected:
  void SetUp() override {
    if (!std::getenv("BAREVISION_TEST_ALL")) GTEST_SKIP() << "in make test-all";
    NodeRuns::SetUp();
    bool made =
        ip("netns add " + network(0)) && ip("netns add " + network(1)) &&
        ip("link add veth0 netns " + network(0) + " type veth peer name veth1 netns " + network(1));
    for (const int n : {0, 1})
      made = made && ip("-n " + network(n) + " link set lo up") &&
             ip("-n " + network(n) + " addr add 10.77.0." + std::to_string(n + 1) + "/24 dev veth" +
                std::to_string(n)) &&
             set_link(n, "up");
    if (!made) GTEST_SKIP() << "no network namespaces: run as root, with CAP_NET_ADMIN and ip";
    address_ = "10.77.0.1";
  }
  void TearDown() override {
    for (auto& launcher : launchers_) launcher.reset();
    for (const int n : {0, 1}) ip("netns del " + network(n));
    NodeRuns::TearDown();
  }

  std::string network(int n) const override {
    return "bv-" + std::to_string(getpid()) + "-" + std::to_string(n);
  }
  bool set_link(int n, const std::string& state) const {
    return ip("-n " + network(n) + " link set veth" + std::to_string(n) + " " + state);
  }
  void start_both(const std::string& words) { start_all(words); }
};

TEST_F(NetworkCut, NodesMeetAgainOnceItIsBack) {
  start_both(words_ + "--timeout 3");
  wait_for_steps();
  ASSERT_TRUE(set_link(1, "down"));
  const std::string restart = "restart 1 of 100 in 1 s; the run ended in step ";
  for (const int n : {0, 1})
    ASSERT_TRUE(has(node(n).errors_until(restart), restart)) << "node " << n;
  usleep(3000000);  // until they wait for each other
  ASSERT_TRUE(set_link(1, "up"));
  wait_for_restart(1);
  EXPECT_EQ(last_metric(in("run"), "restart", "processes"), "2");
  stop({0, 1});
  train_whole(2);
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
  EXPECT_EQ(metric(in("run"), "step", "loss"), metric(in("whole"), "step", "loss"));
}

TEST_F(NetworkCut, NodeZeroContinuesAloneAndTakesTheOtherBack) {
  nodes_ = "1:2";
  start_both(words_ + "--timeout 3");
  wait_for_steps();
  ASSERT_TRUE(set_link(1, "down"));
  wait_for_restart(1);
  EXPECT_EQ(last_metric(in("run"), "restart", "processes"), "1");
  ASSERT_TRUE(set_link(1, "up"));
  node(0).errors_until("node 1 (" + name_of_machine() + ") connected after the start");
  kill(node(0).worker(0), SIGKILL);
  wait_for_restart(2);
  EXPECT_EQ(last_metric(in("run"), "restart", "processes"), "2");
  stop({0, 1});
  expect_losses_of(2);
}

// All four disturbances: of a process, a launcher, a node and the network.
TEST_F(NetworkCut, AndKilledAtRandomMoments) {
  const std::string words = words_ + "--timeout 4 ";
  start_both(words);
  disturb(60, words, /*later=*/false, [this](int n, unsigned microseconds) {
    ASSERT_TRUE(set_link(n, "down"));
    usleep(microseconds);
    ASSERT_TRUE(set_link(n, "up"));
  });
  expect_undisturbed();
}

}  // namespace
}  // namespace bv::test
