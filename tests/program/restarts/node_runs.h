// Runs on several machines (nodes) with --max-restarts: one launcher per node, all on this machine.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/comm/network.h"
#include "tests/program/program.h"

namespace bv::test {

// Runs on random images. `endless` trains until it is stopped, so no disturbance comes too late.
inline const std::string on_random = on_vit + "--data synthetic --batch 12 --device cpu ";
inline const std::string endless =
    on_random + "--steps 1000000 --save-every 2steps --resume auto --out ";

class NodeRuns : public ProgramTest {
 protected:
  void SetUp() override { change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2"); }

  void start(int node, const std::string& words);
  virtual std::string network(int /*node*/) const { return ""; }
  void start_all(const std::string& words) {
    for (int n = 0; n < most_; ++n) start(n, words);
  }
  Program& node(int n) const { return *launchers_[size_t(n)]; }

  // At random moments, starts the launchers that have ended again, then kills a process, a launcher
  // or a whole node. later: starts them only at a random half of the moments. cut: a fourth
  // disturbance, for the given time. Returns once the run trains again. BAREVISION_CHAOS_SEED
  // repeats the disturbances.
  using Cut = std::function<void(int node, unsigned microseconds)>;
  void disturb(int moments, const std::string& words, bool later = false, const Cut& cut = {});

  void wait_for_steps() const;
  void wait_for_restart(int number) const;  // until trains_again()
  // Stops the run, expects a stop's exit code on these nodes and the run's port to be free. Returns
  // their errors.
  std::vector<std::string> stop(const std::vector<int>& nodes);
  // Trains `whole` to the step of the stopped run without a disturbance, and compares the logs'
  // steps.
  void train_whole(int processes);
  // Stops the run of two processes and expects the bytes of an undisturbed run. Returns each
  // node's errors.
  std::vector<std::string> expect_undisturbed();
  // Calls train_whole() and expects the same losses within rounding.
  void expect_losses_of(int processes);
  // "rank 1 (node 1, HOST)"
  static std::string name(int rank);

  const int port_ = free_port() + 1;
  const std::string words_ = "-n 1 " + endless + "run --max-restarts 100 ";
  std::string nodes_ = "2";  // --nnodes
  std::string address_ = "127.0.0.1";
  int most_ = 2;
  std::array<std::unique_ptr<Program>, 4> launchers_;
};

}  // namespace bv::test
