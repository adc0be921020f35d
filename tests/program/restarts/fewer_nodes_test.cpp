// --nnodes MIN:MAX: runs start and continue with the nodes that have connected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "tests/program/restarts/node_runs.h"

namespace bv::test {
namespace {

class FewerNodes : public NodeRuns {
 protected:
  void expect_end(int n, int code, const std::string& line) {
    const Finished end = node(n).wait();
    EXPECT_EQ(end.code, code) << "node " << n << ": " << end.errors;
    EXPECT_TRUE(has(end.errors, line)) << "node " << n << ": " << end.errors;
    EXPECT_FALSE(node(n).anyone_left());
  }
  void kill_node(int n) {
    kill(-node(n).pid(), SIGKILL);
    node(n).wait();
  }
  static std::string host() { return name_of_machine(); }
  std::vector<std::string> restarts(const std::string& member) const {
    return metric(in("run"), "restart", member);
  }
};

TEST_F(FewerNodes, StartAfterALastCall) {
  nodes_ = "2:4";
  const std::string words = "-n 1 " + on_random + "--steps 2 --timeout 2 --out ";
  for (const int n : {0, 2}) start(n, words + "run");
  expect_end(0, 0, "node 1, node 3 have not connected: this start has 2 nodes of --nnodes 2:4\n");
  expect_end(2, 0, "");
  go("-n 2 " + on_random + "--steps 2 --out whole");
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
}

TEST_F(FewerNodes, StartAtOnceIfAllHaveCome) {
  nodes_ = "1:2";
  start_all("-n 1 " + on_random + "--steps 1 --timeout 3600 --out run");  // for the last call
  for (const int n : {0, 1}) expect_end(n, 0, "");
}

// 4, 3, then 4 processes again: the batch stays the same, and so do the losses, up to rounding.
TEST_F(FewerNodes, FourThreeFour) {
  nodes_ = "3:4";
  most_ = 4;
  const std::string words = words_ + "--timeout 4";
  start_all(words);
  wait_for_steps();
  kill_node(3);
  wait_for_restart(1);
  start(3, words);
  node(0).errors_until("node 3 (" + host() + ") connected after the start; it joins at");
  kill(node(1).worker(1), SIGKILL);
  wait_for_restart(2);
  const std::vector<std::string> errors = stop({0, 1, 2, 3});
  EXPECT_TRUE(has(errors[0],
                  "node 3 has not connected: this start has 3 nodes of --nnodes 3:4\n"
                  "restart 1 of 100: 3 processes, 4 before\n"));
  EXPECT_TRUE(has(errors[3], "restart 2 of 100: 4 processes, 3 before\n")) << errors[3];
  EXPECT_EQ(restarts("processes"), (std::vector<std::string>{"3", "4"}));
  EXPECT_EQ(restarts("processes_before"), (std::vector<std::string>{"4", "3"}));
  EXPECT_TRUE(has(contents(in("run/report.html")), " with 3 processes, 4 before</p>"));
  expect_losses_of(4);
}

TEST_F(FewerNodes, EndIfTooFewAreLeft) {
  nodes_ = "2:3";
  start_all(words_ + "--timeout 1");
  wait_for_steps();
  kill_node(1);
  expect_end(0, 1,
             "node 1, node 2 have not connected within 10 s (ten times --timeout), and --nnodes "
             "2:3 needs one more; start ./launcher on every node with its own --node-rank and the "
             "same --nnodes 2:3 -n 1");
  // A new run whose nodes never come ends with a user error.
  start(0, "-n 1 " + endless + "other --max-restarts 100 --timeout 1");
  expect_end(0, 2, "node 1, node 2 have not connected within 3 s (three times --timeout)");
}

TEST_F(FewerNodes, EndIfTheBatchOrThePipelineDoesNotFit) {
  struct Case {
    int nodes;
    std::string words, line;
  };
  for (const auto& [nodes, words, line] :
       {Case{3, "--batch 9 ",
             "the batch of 9 images of the run in run is not divisible by 2 processes; -n 1 would "
             "fit\n"},
        Case{2, "--batch 8 --pipeline 2 ", "-n 1 is not a multiple of --pipeline 2; try -n 2\n"}}) {
    std::filesystem::remove_all(in("run"));
    nodes_ = "1:" + std::to_string(nodes);
    most_ = nodes;
    start_all("-n 1 " + on_vit +
              "--data synthetic --device cpu --steps 1000000 --save-every 2steps --resume auto "
              "--out run --max-restarts 9 --timeout 2 " +
              words);
    wait_for_steps();
    kill_node(nodes - 1);
    for (int n = 0; n < nodes - 1; ++n) expect_end(n, 2, line);
  }
}

TEST_F(FewerNodes, DontTakeAnotherShape) {
  nodes_ = "1:3";
  start(0, words_);
  nodes_ = "2:3";
  start(1, words_);
  expect_end(1, 2,
             "node 1 (" + host() +
                 ") was started with --nnodes 2:3 -n 1, node 0 with --nnodes 1:3 -n 1; give "
                 "all nodes the same\n");
  // Node 1 is also refused while node 0 trains.
  kill_node(0);
  nodes_ = "1:3";
  start(0, words_ + "--timeout 2");
  wait_for_steps();
  nodes_ = "2:3";
  start(1, words_);
  expect_end(1, 2, "; give all nodes the same\n");
  stop({0});
}

TEST_F(FewerNodes, ALatecomerWithoutRestarts) {
  nodes_ = "1:2";
  start(0, "-n 1 " + endless + "run --timeout 2");
  wait_for_steps();
  start(1, "-n 1 " + endless + "run --timeout 2");
  expect_end(1, 2,
             "node 1 (" + host() +
                 ") connected after the start, and there is no restart: the run has no "
                 "--max-restarts\n");
  stop({0});
}

TEST_F(FewerNodes, ALatecomerSeesTheEnd) {
  nodes_ = "1:2";
  const std::string words =
      "-n 1 " + on_random + "--steps 2000 --timeout 2 --max-restarts 1 --resume auto --out run";
  start(0, words);
  ASSERT_TRUE(node(0).wait_for(in("run/metrics.jsonl"), "\"step\":1,"));
  start(1, words);
  expect_end(0, 0, "node 1 (" + host() + ") connected after the start");
  expect_end(1, 0, "");
}

// Two of three nodes are enough.
TEST_F(FewerNodes, KilledAtRandomMoments) {
  if (!std::getenv("BAREVISION_TEST_ALL")) GTEST_SKIP() << "in make test-all";
  nodes_ = "2:3";
  most_ = 3;
  const std::string words = words_ + "--timeout 5 ";
  start_all(words);
  disturb(60, words, /*later=*/true);
  for (int n = 0; n < most_; ++n) kill(node(n).pid(), SIGTERM);
  for (int n = 0; n < most_; ++n) {
    EXPECT_EQ(node(n).wait().code, 128 + SIGTERM);
    EXPECT_FALSE(node(n).anyone_left());
  }
  expect_losses_of(3);
}

TEST_F(FewerNodes, RefuseWhatCanNotBe) {
  for (const std::string nodes : {"4:2", "0:2", "2:x", "0", "2:4:5"}) {
    const Finished end = run("--nnodes " + nodes + " --master-addr 127.0.0.1 " + on_random);
    EXPECT_EQ(end.code, 2);
    EXPECT_EQ(end.errors, "--nnodes " + nodes +
                              ": must be a number of nodes from 1 to 1024, or MIN:MAX of them, "
                              "like 2:4\n");
  }
  const Finished end =
      run("--nnodes 1:2 --master-addr 127.0.0.1 -n 1 --max-restarts 3 --out run --local-batch 4 " +
          on_vit);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors,
            "--local-batch can't be used with --nnodes 1:2 and --max-restarts: the images of a "
            "step stay the same when the number of processes changes; give --batch\n");
}

}  // namespace
}  // namespace bv::test
