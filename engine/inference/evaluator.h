// Evaluates batches: runs the forward pass, sums the metrics on the device and, on request, copies
// each image's logits and loss to the host.
#pragma once
#include "comm/communicator.h"
#include "engine/inference/outputs.h"
#include "engine/model/memory.h"
#include "engine/model/model.h"
#include "engine/model/recorded_work.h"

namespace bv {

struct EvaluationSums {  // as laid out on the device
  double loss = 0, count = 0, top1 = 0, top5 = 0;
};

class Evaluator {
 public:
  static constexpr size_t bytes = align(sizeof(EvaluationSums));
  struct Sizes {
    int batch;  // images
    int micro_batches = 1;
  };
  // The communicator connects the processes that share the batches; null: one process. largest: the
  // graph with the most bytes of logits.
  Evaluator(Backend&, Communicator*, Model&, Feed&, const Graph& largest, const Sizes&);
  void allocate() { sums_ = zeroed_memory(*backend_, bytes); }

  // parameters: from Parameters::context(). receive: called with the outputs for this process's
  // images; empty: only sums are computed.
  void begin(const Context& parameters, Outputs::Receive receive = {});
  // Reads the batch until Feed::wait_for_upload() returns.
  void run(const Batch&);
  void abandon() { outputs_.finish(); }  // instead of end()
  EvaluationSums end();                  // over all processes; waits for the device

  void profile(Profile*);
  void trace(Trace* to) { trace_ = to; }

 private:
  Context context_of(int micro) const;

  Backend* backend_;
  Communicator* communicator_;
  Model* model_;
  Feed* feed_;
  Sizes sizes_;
  DeviceMemory sums_;
  Outputs outputs_;
  RecordedWork recorded_;
  Context parameters_;
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv
