#include "engine/pipeline/gather.h"

#include <algorithm>

namespace bv {
namespace {

Graph laid_out_for(const GatherPath& path, int stage) {
  PipelinePlan plan = path.plan;
  plan.grid.stage = stage;
  Graph graph = path.graph;
  graph.finish(plan.own());
  return graph;
}

// Sends to stage `peer` or receives from it, in pieces that fit both sides' memory.
void carry(const GatherPath& path, std::vector<float>& data, int peer, bool send, size_t piece) {
  for (size_t begin = 0; begin < data.size(); begin += piece) {
    const size_t bytes = std::min(piece, data.size() - begin) * sizeof(float);
    const Transfer transfer{.data = path.memory, .bytes = bytes, .peer = peer, .send = send};
    float* const host = data.data() + begin;
    if (send) path.backend.to_device(path.memory, host, bytes, nullptr);
    path.stages.exchange({&transfer, 1}, nullptr);
    if (!send) path.backend.to_host(host, path.memory, bytes, nullptr);
    path.backend.synchronize(nullptr);
  }
}

}  // namespace

Tensors gather_stages(Tensors own, const GatherPath& path, const TensorsOf& empty) {
  const int stage = path.plan.grid.stage;
  const size_t room = laid_out_for(path, 0).arena_count();
  for (int from = 1; from < path.plan.grid.stages; ++from) {
    if (stage != 0 && stage != from) continue;
    const Graph theirs = laid_out_for(path, from);
    const size_t piece = std::min(room, theirs.arena_count());
    Tensors tensors = stage == 0 ? empty(theirs) : std::move(own);
    for (auto& [name, tensor] : tensors)
      carry(path, tensor.data, stage == 0 ? from : 0, stage != 0, piece);
    if (stage != 0) return {};
    own.merge(tensors);
  }
  return own;
}

}  // namespace bv
