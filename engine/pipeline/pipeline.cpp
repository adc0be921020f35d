#include "engine/pipeline/pipeline.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "engine/pipeline/bubble.h"

namespace bv {
namespace {

void check_parts(const PipelineShape& shape, int blocks) {
  if (shape.parts() <= blocks) return;
  const std::string given = "--pipeline " + std::to_string(shape.stages) +
                            (shape.chunks > 1 ? " --chunks " + std::to_string(shape.chunks) : "");
  std::string fitting = "--pipeline " + std::to_string(std::max(1, blocks / shape.chunks));
  if (shape.chunks > blocks) fitting += " --chunks 1";
  throw UserError(given + ": more than the model's " + counted(blocks, "block") + "; try " +
                  fitting);
}

double bubble_of(const PipelineShape& shape, std::span<const BlockCost> parts, bool recompute) {
  std::vector<PartTime> times;
  for (const BlockCost& p : parts)
    times.push_back({p.forward, p.backward + (recompute ? p.forward : 0)});
  return bubble(shape, times);
}

int percent(double part) { return static_cast<int>(std::lround(100 * part)); }

// The bubble with equal parts, and with the actual parts if that is at least 2 percentage points
// larger.
std::string bubble_text(const Pipeline& p) {
  const std::vector<PartTime> equal(static_cast<size_t>(p.shape.parts()), PartTime{1, 2});
  const int schedule = percent(bubble(p.shape, equal)), of_parts = percent(p.bubble);
  const std::string text = "bubble " + std::to_string(schedule) + "%";
  return of_parts <= schedule + 1
             ? text
             : text + ", " + std::to_string(of_parts) + "% as these parts take unequal time";
}

}  // namespace

std::vector<Slice> Pipeline::slices() const {
  std::vector<Slice> all;
  for (const BlockCost& part : parts) all.push_back(part.nodes);
  return all;
}

Pipeline cut_model(const Options& o, int replicas, const Graph& graph, Kernels& kernels) {
  Pipeline p{.shape = {o.pipeline, o.chunks, *o.micro_batches},
             .replicas = replicas,
             .micro_batch = *o.local_batch / *o.micro_batches,
             .partition = o.partition};
  if (o.pipeline == 1) {
    p.parts = {{.nodes = {0, static_cast<int>(graph.nodes().size())}}};
    return p;
  }
  const std::vector<BlockCost> blocks = blocks_of(graph, kernels);
  check_parts(p.shape, static_cast<int>(blocks.size()));
  p.blocks = partition(blocks, p.shape.parts(), o.partition);
  p.parts = parts_of(blocks, p.blocks);
  p.bubble = bubble_of(p.shape, p.parts, o.recompute == Recompute::blocks);
  return p;
}

std::string describe(const Pipeline& p) {
  if (p.shape.stages == 1) return "";
  return counted(p.shape.stages, "stage") +
         (p.shape.chunks > 1 ? " of " + counted(p.shape.chunks, "chunk") : "") +
         (p.replicas > 1 ? " x " + counted(p.replicas, "replica") : "") + ", " +
         counted(p.shape.micro_batches, "micro-batch") + " of " + std::to_string(p.micro_batch) +
         ", " + (p.partition.kind == Partition::list ? "" : p.partition.text + " ") + "split " +
         list_of(p.blocks) + ", " + bubble_text(p);
}

}  // namespace bv
