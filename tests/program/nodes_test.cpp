// A run on several machines (nodes): one launcher per node, all on this machine, connected by a
// port.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "kernels/devices/devices.h"
#include "tests/comm/network.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using Started = std::unique_ptr<Program>;

const std::string on_random = on_vit + "--data synthetic --batch 12 ";
const std::string two_steps = on_random + "--steps 2 ", endless = on_random + "--steps 100000 ";

class ProgramOnNodes : public ProgramTest {
 protected:
  void SetUp() override { change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2"); }

  // Starts the launcher of node `node`; the run's folder is node 0's.
  Started start(int node, int port, const std::string& words) const {
    return std::make_unique<Program>(
        folder_.path(), "--nnodes 2 --master-addr 127.0.0.1 --node-rank " + std::to_string(node) +
                            " --master-port " + std::to_string(port) + " " + words);
  }
  // Runs both launchers, which must succeed. Returns node 0's end.
  Finished train_on_two(const std::string& words, const std::string& out = "") const {
    const int port = free_port() + 1;
    const Started first = start(0, port, words + (out.empty() ? "" : "--out " + out)),
                  second = start(1, port, words);
    const Finished end = first->wait(), other = second->wait();
    EXPECT_EQ(end.code, 0) << end.errors;
    EXPECT_EQ(other.code, 0) << other.errors;
    EXPECT_EQ(other.output + other.errors, "");
    return end;
  }
  std::string weights(const std::string& run) const {
    return contents(in(run + "/last/weights.safetensors"));
  }
  void expect_near(const std::string& a, const std::string& b) const {
    const std::vector<double> got = losses(in(a)), want = losses(in(b));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-4 * std::abs(want[i])) << a << ", step " << i + 1;
  }
  // "rank 3 (node 1, HOST)"
  static std::string name(int rank, int node) {
    return "rank " + std::to_string(rank) + " (node " + std::to_string(node) + ", " +
           name_of_machine() + ")";
  }
};

TEST_F(ProgramOnNodes, OneRankOnEachOfTwoGivesTheBytesOfTwoRanks) {
  go("-n 2 " + two_steps + "--device cpu --out one");
  for (const std::string how : {"flat", "2d"}) {
    const Finished end =
        train_on_two("-n 1 " + two_steps + "--device cpu --all-reduce " + how + " ", how);
    EXPECT_TRUE(weights("one") == weights(how)) << how;
    const std::string host = name_of_machine();
    EXPECT_TRUE(has(end.output, "nodes: " + host + " rank 0, " + host + " rank 1\n"));
    EXPECT_TRUE(has(end.output, " of at most 4.0 MiB on 1 stream, " + how + " all-reduce\n"));
  }
}

TEST_F(ProgramOnNodes, TwoRanksOnEachOfTwoGiveTheLossesOfFourRanks) {
  const std::string words = two_steps + "--device cpu --optimizer sgd --lr .05 ";
  go("-n 4 " + words + "--out one");
  for (const std::string how : {"flat", "2d"}) {
    train_on_two("-n 2 " + words + "--all-reduce " + how + " ", how);
    expect_near(how, "one");
  }
  // One node resumes a run of two, and vice versa.
  EXPECT_TRUE(has(go("--resume 2d --steps 3 -n 4").output,
                  "\n--all-reduce 2d is flat here: all processes are on one machine\n"));
  go("--resume flat --steps 3");
  EXPECT_TRUE(last_metric(in("flat"), "step", "step") == "3");
  train_on_two("--resume one --steps 3 --all-reduce flat ");
  expect_near("one", "2d");
}

TEST_F(ProgramOnNodes, SeveralStreamsAddInTheSameTwoLevels) {
  for (const std::string device : {"cpu", "simt"}) {
    if (device == "simt" && !is_built(DeviceKind::simt)) continue;
    const std::string words =
        "-n 2 " + two_steps + "--all-reduce 2d --bucket-bytes 65536 --device ";
    for (const std::string streams : {"1", "3"})
      train_on_two(words + device + " --comm-streams " + streams + " ", device + streams);
    EXPECT_EQ(weights(device + "1"), weights(device + "3")) << device;
  }
}

TEST_F(ProgramOnNodes, TrainOnTheStandIn) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  const std::string words = two_steps + "--device simt --precision fp16 ";
  go("-n 2 " + words + "--out one");
  train_on_two("-n 1 " + words, "two");
  EXPECT_TRUE(weights("one") == weights("two"));
  train_on_two("-n 2 " + words, "four");
  expect_near("four", "one");
}

// Starts nodes[i] ranks on node i, like torchrun.
std::vector<Started> start_by_environment(const std::string& folder, const std::vector<int>& nodes,
                                          const std::string& words) {
  std::vector<Started> ranks;
  const std::string port = std::to_string(free_port());
  int size = 0;
  for (const int n : nodes) size += n;
  for (size_t node = 0; node < nodes.size(); ++node)
    for (int local = 0; local < nodes[node]; ++local) {
      ProgramOptions options;
      options.environment = {{"RANK", std::to_string(ranks.size())},
                             {"WORLD_SIZE", std::to_string(size)},
                             {"LOCAL_RANK", std::to_string(local)},
                             {"LOCAL_WORLD_SIZE", std::to_string(nodes[node])},
                             {"GROUP_RANK", std::to_string(node)},
                             {"GROUP_WORLD_SIZE", std::to_string(nodes.size())},
                             {"MASTER_PORT", port},
                             {"MASTER_ADDR", "127.0.0.1"}};
      ranks.push_back(std::make_unique<Program>(folder, words, options));
    }
  return ranks;
}

TEST_F(ProgramOnNodes, TorchrunsRanksGiveTheSameBytes) {
  const std::string words = two_steps + "--device cpu ";
  train_on_two("-n 2 " + words, "own");
  for (const Started& rank : start_by_environment(folder_.path(), {2, 2}, words + "--out theirs"))
    EXPECT_EQ(rank->wait().code, 0);
  EXPECT_TRUE(weights("own") == weights("theirs"));
}

TEST_F(ProgramOnNodes, UnequalNodesAddFlat) {
  const std::string words = on_random + "--steps 1 --device cpu --out run";
  for (const Started& rank : start_by_environment(folder_.path(), {2, 1}, words + "1"))
    EXPECT_EQ(rank->wait().code, 0);
  const std::string host = name_of_machine();
  for (const Started& rank :
       start_by_environment(folder_.path(), {2, 1}, words + "2 --all-reduce 2d"))
    EXPECT_EQ(rank->wait().code, 2);
}

TEST_F(ProgramOnNodes, TheOtherNodesFolderIsNotUsed) {
  const int port = free_port() + 1;
  const Started first = start(0, port, "-n 1 " + two_steps + "--device cpu --out run"),
                second = start(1, port, "-n 1 " + two_steps + "--device cpu --out other");
  EXPECT_EQ(first->wait().code, 0);
  const Finished other = second->wait();
  EXPECT_EQ(other.code, 0);
  EXPECT_EQ(other.errors, "node 1 (" + name_of_machine() +
                              "): --out other is ignored, the run's folder is on node 0\n");
  EXPECT_FALSE(std::filesystem::exists(in("other")));
}

// ---- how a run ends -----------------------------------------------------------------------------

const std::string gone = " has died", silent = " has not answered for 3 s (--timeout)\n",
                  killed = " was killed by SIGKILL (out of memory?)\n";

struct Victim {
  int node, rank;  // rank -1: the launcher
};

class ProgramOnNodesEnds : public ProgramOnNodes {
 protected:
  // Sends the signal to `victim`; both launchers must end and print these lines. A death must be
  // detected long before the timeout.
  void expect_end(const std::string& device, Victim victim, int signal, const std::string& on_node0,
                  const std::string& on_node1) {
    SCOPED_TRACE(device + ", rank " + std::to_string(victim.rank));
    const std::string run = "run" + std::to_string(++runs_);
    const int port = free_port() + 1;
    const std::string words = "-n 2 " + endless + "--device " + device +
                              (signal == SIGKILL ? " --timeout 3600" : " --timeout 3");
    const Started nodes[] = {start(0, port, words + " --out " + run), start(1, port, words)};
    ASSERT_TRUE(nodes[0]->wait_for(in(run + "/metrics.jsonl"), "\"step\":2,"));
    Program& node = *nodes[victim.node];
    kill(victim.rank < 0 ? node.pid() : node.worker(victim.rank), signal);
    for (const int n : {0, 1}) {
      const Finished end = nodes[n]->wait();
      EXPECT_NE(end.code, 0);
      const std::string& line = n == 0 ? on_node0 : on_node1;
      if (line.empty() || line.ends_with(killed))  // only the launcher may print a line
        EXPECT_EQ(end.errors, line);
      else
        EXPECT_TRUE(has(end.errors, line)) << "node " << n << ": " << end.errors;
      EXPECT_FALSE(nodes[n]->anyone_left());
    }
  }
  int runs_ = 0;
};

TEST_F(ProgramOnNodesEnds, WhenAWorkerIsKilled) {
  expect_end("cpu", {1, 3}, SIGKILL, name(3, 1) + gone, name(3, 1) + killed);
  expect_end("cpu", {0, 0}, SIGKILL, name(0, 0) + killed, name(0, 0) + gone);
  expect_end("cpu --all-reduce flat", {1, 2}, SIGKILL, name(2, 1) + gone, name(2, 1) + killed);
}

// The launcher's workers die with it; one of them is named, since no process on that node can
// report.
TEST_F(ProgramOnNodesEnds, WhenALauncherIsKilled) {
  expect_end("cpu", {1, -1}, SIGKILL, "(node 1, " + name_of_machine() + ")" + gone, "");
  expect_end("cpu", {0, -1}, SIGKILL, "", "(node 0, " + name_of_machine() + ")" + gone);
}

// All ranks wait for rank 0, some of them through others.
TEST_F(ProgramOnNodesEnds, WhenAWorkerIsStopped) {
  expect_end("cpu", {0, 0}, SIGSTOP, name(0, 0) + silent, name(0, 0) + silent);
}

TEST_F(ProgramOnNodesEnds, OnTheStandInToo) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  expect_end("simt", {1, 3}, SIGKILL, name(3, 1) + gone, name(3, 1) + killed);
}

TEST_F(ProgramOnNodesEnds, InOrderOnASignal) {
  const int port = free_port() + 1;
  const std::string words = "-n 1 " + endless + "--device cpu ";
  const Started first = start(0, port, words + "--out run"), second = start(1, port, words);
  ASSERT_TRUE(first->wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(second->pid(), SIGTERM);
  EXPECT_EQ(first->wait().code, 128 + SIGTERM);
  EXPECT_EQ(second->wait().code, 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(in("run/last/weights.safetensors")));
}

// One rank finds the image and reports it to all nodes.
TEST_F(ProgramOnNodesEnds, WhenAnImageIsBroken) {
  make_class_folders(in("photos"), 2, 12);
  write_text(in("photos/class1/3.ppm"), "P6\n40 36\n255\nabc");
  const int port = free_port() + 1;
  const std::string words =
      "-n 2 " + on_vit + "--data photos --batch 4 --epochs 1 --split-seed 1 --device cpu ";
  const Started first = start(0, port, words + "--out run"), second = start(1, port, words);
  const std::string why = "photos/class1/3.ppm: PNM data is cut off (--on-bad-image skip";
  for (const Started& node : {std::cref(first), std::cref(second)})
    EXPECT_TRUE(has(node->wait().errors, why));
}

TEST_F(ProgramOnNodesEnds, WhenOptionsDiffer) {
  const int port = free_port() + 1;
  const std::string words = "-n 1 " + two_steps + "--device cpu ";
  const Started first = start(0, port, words + "--out run"),
                second = start(1, port, words + "--seed 7");
  for (const Started& node : {std::cref(first), std::cref(second)}) {
    const Finished end = node->wait();
    EXPECT_EQ(end.code, 2);
    EXPECT_EQ(end.errors, name(1, 1) +
                              " was started with \"seed\": 7, rank 0 with \"seed\": 0; start all "
                              "with the same options\n");
  }
}

// ---- how a run fails to begin -------------------------------------------------------------------

class ProgramOnNodesMeets : public ProgramOnNodes {
 protected:
  // Expects exit code 2 and one line. waited: a launcher's line about its waiting may precede it.
  void expect_refusal(Program& node, const std::string& line, bool waited = false) {
    const Finished end = node.wait();
    EXPECT_EQ(end.code, 2);
    waited = waited && end.errors.starts_with("waiting for node ");
    expect_line(end.errors.substr(waited ? end.errors.find('\n') + 1 : 0), line);
  }
  static void expect_line(const std::string& errors, const std::string& part) {
    EXPECT_TRUE(errors.ends_with('\n') && is_line(errors.substr(0, errors.size() - 1), part));
  }
  const std::string words_ = two_steps + "--device cpu --timeout 2 ";
};

TEST_F(ProgramOnNodesMeets, NamesTheNodeThatDoesntCome) {
  const int port = free_port() + 1;
  const Started first = start(0, port, "-n 2 " + words_ + "--out run");
  const Started second = start(1, free_port() + 1, "-n 2 " + words_);
  expect_refusal(*first,
                 "node 1 (ranks 2-3) has not connected within 2 s (--timeout); start ./launcher");
  expect_refusal(*second, "node 0 (rank 0) did not answer at 127.0.0.1:");
  EXPECT_FALSE(std::filesystem::exists(in("run")));
}

TEST_F(ProgramOnNodesMeets, NamesAPortThatIsTaken) {
  const Socket taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int port = free_port() + 1;
  const sockaddr_in address = loopback(port);
  ASSERT_EQ(bind(taken.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(taken.fd(), 1), 0);
  const Started first = start(0, port, "-n 1 " + words_ + "--out run");
  expect_refusal(*first, "port " + std::to_string(port) + " of " + name_of_machine() + " is taken");
}

TEST_F(ProgramOnNodesMeets, NamesAHostThatIsUnknown) {
  const Finished end =
      run("--nnodes 2 --node-rank 1 --master-addr no.such.host.invalid -n 1 " + words_);
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.errors, "--master-addr no.such.host.invalid: "));
}

TEST_F(ProgramOnNodesMeets, StartsAlthoughGarbageComes) {
  const int port = free_port() + 1;
  const Started first = start(0, port, "-n 1 " + two_steps + "--device cpu --out run");
  ASSERT_TRUE(wait_until([=] { return say_to_port(port, "GET / HTTP/1.1\r\n\r\n"); }));
  const Started second = start(1, port, "-n 1 " + two_steps + "--device cpu");
  EXPECT_EQ(first->wait().code, 0);
  EXPECT_EQ(second->wait().code, 0);
}

TEST_F(ProgramOnNodesMeets, NamesTwoNodesOfOneRank) {
  const int port = free_port() + 1;
  // Both twins must connect within the timeout.
  const std::string words = "-n 1 " + two_steps + "--device cpu --timeout 5 ";
  const std::string three = "--nnodes 3 --master-addr 127.0.0.1 --master-port " +
                            std::to_string(port) + " " + words + "--node-rank ";
  Program first(folder_.path(), three + "0 --out run"), one(folder_.path(), three + "1"),
      twin(folder_.path(), three + "1");
  Program& late = first_to_end(one, twin);
  expect_refusal(late, "another launcher has connected with --node-rank 1 before this one (");
  expect_refusal(
      first,
      "node 2 (rank 2) has not connected within 5 s (--timeout); a process that connected was "
      "refused: node 1 (" +
          name_of_machine() + ") connected twice");
  expect_refusal(&late == &one ? twin : one, "node 2 (rank 2) has not connected within 5 s");
}

TEST_F(ProgramOnNodesMeets, NamesNodesOfDifferentShape) {
  const int port = free_port() + 1;
  // `last` must connect within node 0's timeout.
  const std::string words = two_steps + "--device cpu --timeout ";
  const Started patient = start(0, port, "-n 2 " + words + "3600 --out run");
  const std::string node1 = "node 1 (" + name_of_machine() + ") ";
  std::string shape;
  const auto at = [&](int its_port) {
    return shape + " --node-rank 1 --master-addr 127.0.0.1 --master-port " +
           std::to_string(its_port) + " " + words + "3600";
  };
  for (const auto& [nodes, n] : {std::pair{2, 3}, std::pair{3, 1}, std::pair{4, 1}}) {
    shape = "--nnodes " + std::to_string(nodes) + " -n " + std::to_string(n);
    Program other(folder_.path(), at(port));
    expect_refusal(other, node1 + "was started with " + shape +
                              ", node 0 with --nnodes 2 -n 2; give all nodes the same");
  }
  const int next_port = free_port() + 1;
  const Started first = start(0, next_port, "-n 2 " + words + "5 --out other");
  Program last(folder_.path(), at(next_port));
  expect_refusal(*first, "a process that connected was refused: " + node1 + "has " + shape +
                             ", node 0 has --nnodes 2 -n 2; start");
}

// With --max-restarts launchers meet, without it the processes do.
TEST_F(ProgramOnNodesMeets, NamesNodesOfOtherRestarts) {
  const std::string words = "-n 1 " + two_steps + "--device cpu --timeout 2 ", one = "--out run ",
                    two = one + "--max-restarts 2 ", three = one + "--max-restarts 3 ";
  const int port = free_port() + 1, other_port = free_port() + 1, third_port = free_port() + 1;
  const Started none = start(0, port, words + one), some = start(1, port, words + two),
                first = start(0, other_port, words + two),
                second = start(1, other_port, words + three),
                with = start(0, third_port, words + two), without = start(1, third_port, words);
  const std::string node1 = "node 1 (" + name_of_machine() + ") ", shape = "--nnodes 2 -n 1";
  expect_refusal(*second, node1 + "was started with " + shape + " --max-restarts 3, node 0 with " +
                              shape + " --max-restarts 2; give all nodes the same");
  expect_refusal(*first,
                 "a process that connected was refused: " + node1 + "has " + shape +
                     " --max-restarts 3, node 0 has " + shape + " --max-restarts 2; start",
                 true);
  expect_refusal(*some,
                 ", where another job's processes meet, or this one's without --max-restarts or "
                 "--nnodes MIN:MAX; start",
                 true);
  expect_refusal(*without, "node 0 (rank 0) did not answer at 127.0.0.1:");
  expect_refusal(*none,
                 node1.substr(0, 6) + " (rank 1) has not connected within 2 s (--timeout); start");
  expect_refusal(*with, node1.substr(0, 6) + " (rank 1) has not connected within 6 s (three times",
                 true);
}

TEST_F(ProgramOnNodesMeets, ChecksItsOptions) {
  const std::string words = "-n 1 " + words_;
  expect_line(run("--nnodes 2 " + words).errors,
              "--nnodes 2 needs --master-addr HOST, the machine of --node-rank 0");
  expect_line(run("--nnodes 2 --node-rank 2 " + words).errors,
              "--node-rank 2: the last of --nnodes 2 is 1");
}

}  // namespace
}  // namespace bv::test
