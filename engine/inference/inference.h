// A model for inference: its weights, and memory planned for the forward pass alone.
#pragma once
#include "engine/inference/evaluator.h"
#include "engine/model/parameters.h"
#include "engine/model/whole_model.h"

namespace bv {

class Inference {
 public:
  // Images have the model's input size. The communicator connects the processes that share the
  // batches; null: one process. The constructor only plans; allocate() allocates.
  Inference(Backend&, Communicator*, const Graph&, int batch, int side);
  size_t bytes() const;  // of device memory
  void allocate();
  Parameters& parameters() { return parameters_; }

  // See Evaluator.
  void begin(Outputs::Receive receive = {}) { evaluator_.begin(parameters_.context(), receive); }
  void run(const Batch& batch) { evaluator_.run(batch); }
  void wait_for_upload() { feed_.wait_for_upload(); }
  EvaluationSums end() { return evaluator_.end(); }

 private:
  Backend* backend_;
  Parameters parameters_;
  Feed feed_;
  WholeModel model_;
  DeviceMemory scratch_;
  Evaluator evaluator_;
};

}  // namespace bv
