// A model that doesn't train: its weights, and memory planned for the forward pass alone.
#pragma once
#include <memory>

#include "engine/inference/evaluation_sums.h"
#include "engine/inference/outputs.h"
#include "engine/model/feed.h"
#include "engine/model/model_chunk.h"
#include "engine/model/parameters.h"

namespace bv {

class Inference {
 public:
  // Of the graph's batches, in images of the model's input size. The communicator connects the
  // processes that share them; null: there is one. Plans; allocate() takes the memory.
  Inference(Backend&, Communicator*, const Graph&, int batch, int side);
  size_t bytes() const;  // of device memory
  void allocate();
  Parameters& parameters() { return parameters_; }

  // `receive` is given what the model says of each image of this process; none: the sums alone.
  void begin(Outputs::Receive receive = {});
  // The batch is read until wait_for_upload() returns.
  void run(const Batch&);
  void wait_for_upload() { feed_.wait_for_upload(); }
  EvaluationSums end();  // over all processes; waits for the device

 private:
  Backend* backend_;
  Communicator* communicator_;
  Parameters parameters_;
  Feed feed_;
  ModelChunk stage_;
  DeviceSums sums_;
  Outputs outputs_;
  Context context_;
  std::unique_ptr<Recording> forward_;
};

}  // namespace bv
