// --max-restarts on several machines (nodes): one launcher per node, all on this machine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/program/restarts/node_runs.h"

namespace bv::test {
namespace {

class NodeRestarts : public NodeRuns {
 protected:
  void start_both(const std::string& words) { start_all(words); }
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
    EXPECT_EQ(last_metric(in("run"), "restart", "rank"), std::to_string(n));
  }
  const auto errors = expect_undisturbed();
  EXPECT_TRUE(has(errors[1], "node 1: joins the run at restart 1 of 100\n")) << errors[1];
  EXPECT_TRUE(has(errors[0], "node 0: joins the run at restart 2 of 100\n")) << errors[0];
}

TEST_F(NodeRestarts, ALauncherThatIsKilledForGood) {
  const std::string words = "-n 2 " + endless + "run --max-restarts 100 --timeout 1";
  start_both(words);
  wait_for_steps();
  kill(node(1).pid(), SIGKILL);
  // Node 0 waits as long when it is started again.
  for (int i = 0; i < 2; ++i) {
    const Finished end = node(0).wait();
    EXPECT_EQ(end.code, 1);
    EXPECT_TRUE(has(end.errors, "waiting for node 1 (ranks 2-3), up to ten times --timeout\n"))
        << end.errors;
    EXPECT_TRUE(has(end.errors,
                    "node 1 (ranks 2-3) has not connected within 10 s (ten times --timeout); "
                    "start ./launcher on every node"))
        << end.errors;
    EXPECT_FALSE(node(0).anyone_left());
    if (i == 0) start(0, words);
  }
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

// A user error that only one node's processes can detect ends the other node, too.
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

TEST_F(NodeRestarts, KilledAtRandomMoments) {
  const std::string words = words_ + "--timeout 5 ";
  start_both(words);
  disturb(std::getenv("BAREVISION_TEST_ALL") ? 60 : 3, words);
  expect_undisturbed();
}

}  // namespace
}  // namespace bv::test
