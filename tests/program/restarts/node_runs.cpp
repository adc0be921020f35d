#include "tests/program/restarts/node_runs.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "comm/processes/world.h"
#include "engine/files/checkpoint.h"
#include "tests/program/restarts/trains_again.h"

namespace bv::test {
namespace {

bool listens_on(int port) {
  const Socket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = loopback(port);
  return bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         listen(made.fd(), 1) == 0;
}

}  // namespace

void NodeRuns::start(int node, const std::string& words) {
  launchers_[size_t(node)] = std::make_unique<Program>(
      folder_.path(),
      "--nnodes " + nodes_ + " --master-addr " + address_ + " --node-rank " + std::to_string(node) +
          " --master-port " + std::to_string(port_) + " " + words,
      ProgramOptions{.network = network(node)});
}

void NodeRuns::disturb(int moments, const std::string& words, bool later, const Cut& cut) {
  const char* given = std::getenv("BAREVISION_CHAOS_SEED");
  const unsigned seed = given && *given ? unsigned(std::atoi(given)) : unsigned(getpid());
  SCOPED_TRACE("BAREVISION_CHAOS_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  const auto start_what_ended = [&] {
    for (int n = 0; n < most_; ++n) {
      if (!node(n).has_ended()) continue;
      const Finished end = node(n).wait();
      EXPECT_NE(end.code, 2) << end.errors;
      EXPECT_FALSE(node(n).anyone_left());
      start(n, words);
    }
  };
  const int acts = cut ? 4 : 3;
  for (int i = 0; i < moments; ++i) {
    usleep(unsigned(below(3000000)));
    if (!later || below(2) == 0) start_what_ended();
    const int n = below(most_), act = i < acts ? i : below(acts);
    if (node(n).has_ended()) continue;
    const auto own = children_of(node(n).pid());
    if (act == 0 && !own.empty()) kill(own[0], SIGKILL);
    if (act == 1 || act == 2) kill(act == 1 ? node(n).pid() : -node(n).pid(), SIGKILL);
    if (act == 3) cut(n, unsigned(below(9000000)));
  }
  // Whatever happened last, the run trains again.
  const auto steps = [&] {
    const bool begun = std::filesystem::exists(in("run/metrics.jsonl"));
    return begun ? metric(in("run"), "step", "step").size() : 0;
  };
  const size_t before = steps();
  EXPECT_TRUE(wait_until([&] {
    start_what_ended();
    return steps() > before + 5;
  }));
}

void NodeRuns::wait_for_steps() const {
  ASSERT_TRUE(node(0).wait_for(in("run/last/state.json"), "crc32c"));
}

void NodeRuns::wait_for_restart(int number) const {
  ASSERT_TRUE(wait_until([&] { return trains_again(in("run"), number) || node(0).has_ended(); }) &&
              trains_again(in("run"), number));
}

std::vector<std::string> NodeRuns::stop(const std::vector<int>& nodes) {
  kill(node(0).pid(), SIGTERM);
  std::vector<std::string> errors;
  for (const int n : nodes) {
    const Finished end = node(n).wait();
    EXPECT_EQ(end.code, 128 + SIGTERM) << "node " << n << ": " << end.errors;
    EXPECT_FALSE(node(n).anyone_left());
    errors.push_back(end.errors);
  }
  EXPECT_TRUE(listens_on(port_)) << "the port is still taken";
  return errors;
}

void NodeRuns::train_whole(int processes) {
  const int64_t step = load_checkpoint(in("run")).step;
  std::filesystem::remove_all(in("whole"));
  go("-n " + std::to_string(processes) + " " + on_random + "--steps " + std::to_string(step) +
     " --out whole");
  EXPECT_EQ(metric(in("run"), "step", "step"), metric(in("whole"), "step", "step"));
}

std::vector<std::string> NodeRuns::expect_undisturbed() {
  const std::vector<std::string> errors = stop({0, 1});
  train_whole(2);
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
  EXPECT_EQ(metric(in("run"), "step", "loss"), metric(in("whole"), "step", "loss"));
  return errors;
}

void NodeRuns::expect_losses_of(int processes) {
  train_whole(processes);
  const std::vector<double> got = losses(in("run")), want = losses(in("whole"));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-3 * std::abs(want[i])) << "step " << i + 1;
}

std::string NodeRuns::name(int rank) {
  return "rank " + std::to_string(rank) + " (node " + std::to_string(rank) + ", " +
         name_of_machine() + ")";
}

}  // namespace bv::test
