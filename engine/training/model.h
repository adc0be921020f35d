// A graph ready to run: its stage, and recordings of what a step does, which a device may capture
// once and replay.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "engine/training/gradient_sync.h"
#include "engine/training/optimizer.h"
#include "engine/training/stage.h"

namespace bv {

class Model {
 public:
  // sync: null if there is one replica.
  Model(Backend&, const Graph&, Optimizer&, GradientSync* sync, bool recompute);
  const Stage& stage() const { return stage_; }
  // The context of every step: parameters, batch, StepParams.
  void allocate(const Context&);
  void profile(Profile*);

  // Forward and backward of a batch, the first or last of an update.
  void micro_step(bool first, bool last);
  void update();
  void evaluate(double* sums);  // of Metrics; the same in every call
  // Nodes of the recorded graphs: of a micro-step (the largest) and of the update; 0 without one.
  std::pair<int, int> graph_nodes() const;

 private:
  void play(std::unique_ptr<Recording>&, std::function<void()> issue);

  Backend* backend_;
  const Graph* graph_;
  Optimizer* optimizer_;
  GradientSync* sync_;
  Stage stage_;
  Context context_;
  std::array<std::unique_ptr<Recording>, 4> micro_steps_;  // by first + 2 last
  std::unique_ptr<Recording> update_, evaluation_;
  Profile* profile_ = nullptr;
};

}  // namespace bv
