// Work that is enqueued many times unchanged. On a GPU the first run launches its kernels, the
// second captures a CUDA graph, and later ones launch that.
// Values that change from run to run must be passed through device memory.
#pragma once
#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/model/profile.h"
#include "kernels/backend.h"
#include "models/graph/graph.h"

namespace bv {

class RecordedWork {
 public:
  // Two pieces of work with the same key are the same work.
  struct Key {
    enum Kind : uint8_t { micro_step, update, evaluation } kind;
    const Graph* graph;              // in the precision in use
    bool first = false;              // the micro-step is the first of its update
    const float* weights = nullptr;  // evaluation: the trained weights or their average
    int micro = 0;                   // evaluation
    auto operator<=>(const Key&) const = default;
  };
  explicit RecordedWork(Backend& backend) : backend_(&backend) {}
  void run(const Key& key, std::function<void()> issue) {
    if (profile_) return issue();  // recorded work can't be timed node by node
    std::unique_ptr<Recording>& recording = recordings_[key];
    if (!recording) recording = backend_->recording(std::move(issue));
    recording->replay();
  }
  void profile(Profile* to) { profile_ = to; }
  int largest() const {  // nodes of the largest CUDA graph
    int nodes = 0;
    for (const auto& [key, recording] : recordings_) nodes = std::max(nodes, recording->nodes());
    return nodes;
  }

 private:
  Backend* backend_;
  std::map<Key, std::unique_ptr<Recording>> recordings_;
  Profile* profile_ = nullptr;
};

}  // namespace bv
