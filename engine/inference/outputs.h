// Copies the logits and losses of evaluated images to the host. They are delivered two batches
// late, so that the device need not wait for the host.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/loader.h"
#include "engine/inference/prediction.h"
#include "engine/model/model_chunk.h"

namespace bv {

struct BatchOutputs {
  int64_t first;  // index of the first image
  int count, classes;
  std::span<const float> logits;    // [count, classes]
  std::span<const float> loss;      // [count]
  std::span<const int32_t> labels;  // [count]; -1: the image could not be read

  std::span<const float> logits_of(int row) const {
    return logits.subspan(static_cast<size_t>(row) * static_cast<size_t>(classes),
                          static_cast<size_t>(classes));
  }
};
void append_predictions(const BatchOutputs&, std::vector<Prediction>&);

class Outputs {
 public:
  using Receive = std::function<void(const BatchOutputs&)>;
  // largest: of the graphs passed to add(), the one with the most bytes of logits.
  Outputs(Backend&, const Graph& largest);

  // Receives the following batches until finish(). The first call allocates the host memory.
  void begin(Receive);
  // Call it after enqueuing the batch's forward pass. Does nothing before begin(). device_labels:
  // given if the batch has no labels on the host.
  void add(const Batch&, const ModelChunk&, const int32_t* device_labels = nullptr);
  void finish();

 private:
  struct Slot {
    std::shared_ptr<void> logits, loss;  // in the device's dtype
    std::vector<int32_t> labels;
    std::shared_ptr<void> device_labels;  // to be copied to `labels`; null: already there
    const Graph* graph = nullptr;
    int64_t first = 0;
    Event copied = nullptr;
    bool full = false;
  };
  void deliver(Slot&);

  Backend* backend_;
  const Graph* largest_;
  Slot slots_[2];
  int turn_ = 0;
  std::vector<float> logits_;  // of the batch being delivered
  Receive receive_;
};

}  // namespace bv
