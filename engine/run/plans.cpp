#include "engine/run/plans.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "base/text.h"
#include "engine/model/plan.h"
#include "engine/pipeline/micro_batches.h"

namespace bv {
namespace {

// The settings that change a memory plan.
struct Variant {
  int local_batch, stages, micro_batches;
  bool recompute;
};

Variant variant_of(const Setup& s) {
  return {.local_batch = *s.options.local_batch,
          .stages = s.options.pipeline,
          .micro_batches = *s.options.micro_batches,
          .recompute = s.trainer.recompute};
}

std::vector<MemoryPlan> plans_of(const Setup& s, Backend& backend, const Variant& v) {
  Options o = s.options;
  o.local_batch = v.local_batch;
  o.micro_batches = v.micro_batches;
  if (o.pipeline != v.stages && o.partition.kind == Partition::list) o.partition = {};
  o.pipeline = v.stages;
  const int images = v.local_batch / v.micro_batches;
  Graph graph = graph_in(s, s.graph.dtype(), images);
  std::optional<Graph> fp32;
  if (s.fp32_graph) fp32 = graph_in(s, DType::fp32, images);
  const Pipeline pipeline = cut_model(o, s.replicas, graph, backend.kernels());
  TrainerOptions trainer = s.trainer;
  trainer.local_batch = v.local_batch;
  trainer.recompute = v.recompute;
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage < v.stages; ++stage) {
    trainer.pipeline = {.shape = pipeline.shape,
                        .grid = {.stages = v.stages, .replicas = s.replicas, .stage = stage},
                        .parts = pipeline.slices()};
    graph.finish(trainer.pipeline.own());
    if (fp32) fp32->finish(trainer.pipeline.own());
    plans.push_back(Trainer(backend, nullptr, graph, trainer, pointer_to(fp32)).plan());
  }
  return plans;
}

size_t largest_peak(const Setup& s, Backend& backend, const Variant& v) {
  size_t most = 0;
  for (const MemoryPlan& plan : plans_of(s, backend, v)) most = std::max(most, plan.peak());
  return most;
}

// "0-2, 6-8": the blocks of a stage's parts
std::string blocks_of_stage(const Pipeline& p, int stage) {
  std::vector<std::string> ranges;
  int first = 0;
  for (int part = 0; part < p.shape.parts(); ++part) {
    const int last = first + p.blocks[static_cast<size_t>(part)] - 1;
    if (part % p.shape.stages == stage)
      ranges.push_back(std::to_string(first) + (last > first ? "-" + std::to_string(last) : ""));
    first = last + 1;
  }
  return join(ranges, ", ");
}

std::string slots_of_stage(const Pipeline& p, int stage) {
  std::vector<std::string> counts;
  for (const int n : slots(p.shape, stage)) counts.push_back(std::to_string(n));
  return join(counts, ", ");
}

size_t parameters_of_stage(const Pipeline& p, int stage) {
  double sum = 0;
  for (int chunk = 0; chunk < p.shape.chunks; ++chunk)
    sum += p.parts[static_cast<size_t>(p.shape.part_of(stage, chunk))].parameters;
  return static_cast<size_t>(sum);
}

// The largest batch that fits in memory; 0: none.
int smaller_batch(const Setup& s, Backend& backend, size_t limit) {
  Variant v = variant_of(s);
  const int unit = v.micro_batches * (s.trainer.mixing ? 2 : 1);
  int good = 0, bad = v.local_batch / unit;
  while (bad - good > 1) {
    const int middle = (good + bad) / 2;
    v.local_batch = middle * unit;
    (largest_peak(s, backend, v) <= limit ? good : bad) = middle;
  }
  return good * unit;
}

// The smallest number of micro-batches that fits; 0: none.
Variant more_micro_batches(const Setup& s, Backend& backend, size_t limit) {
  Variant v = variant_of(s);
  if (s.options.shards) return v.micro_batches = 0, v;
  const Micro micro = micro_of(s.options, s.model);
  do v.micro_batches = next_micro_batches(v.micro_batches + 1, micro);
  while (v.micro_batches && largest_peak(s, backend, v) > limit);
  return v;
}

// The smallest number of stages that fits, with the same number of replicas; 0: none.
Variant more_stages(const Setup& s, Backend& backend, MemoryLimit limit) {
  Variant v = variant_of(s);
  Options o = s.options;
  const int most = static_cast<int>(s.graph.cuts().size()) / o.chunks;
  while (++v.stages <= most) {
    o.pipeline = v.stages;
    const Micro micro = micro_of(o, s.model);
    const bool asked =
        (o.shards || o.is_explicit("micro_batches")) && divides(*o.micro_batches, micro);
    if (o.shards && !asked) continue;
    v.micro_batches = asked ? *o.micro_batches : default_micro_batches(micro);
    if (!divides(v.micro_batches, micro)) continue;
    const auto processes = static_cast<size_t>(s.options.pipeline),
               more = static_cast<size_t>(v.stages);
    const size_t bytes = limit.shared ? limit.bytes * processes / more : limit.bytes;
    if (largest_peak(s, backend, v) <= bytes) return v;
  }
  v.stages = 0;
  return v;
}

}  // namespace

std::vector<MemoryPlan> stage_plans(const Setup& s, Backend& backend) {
  return plans_of(s, backend, variant_of(s));
}

void print_stages(std::ostream& out, const Setup& s, const std::vector<MemoryPlan>& plans) {
  out << "pipeline: " << describe(s.pipeline) << "\n";
  char line[200];
  const auto row = [&](auto... cells) {
    std::snprintf(line, sizeof line, "%5s  %-14s %11s  %-12s %12s %12s\n", cells...);
    out << line;
  };
  row("stage", "blocks", "parameters", "in flight", "activations", "peak");
  for (int stage = 0; stage < static_cast<int>(plans.size()); ++stage) {
    const MemoryPlan& plan = plans[static_cast<size_t>(stage)];
    row(std::to_string(stage).c_str(), blocks_of_stage(s.pipeline, stage).c_str(),
        std::to_string(parameters_of_stage(s.pipeline, stage)).c_str(),
        slots_of_stage(s.pipeline, stage).c_str(), format_bytes(plan.activations).c_str(),
        format_bytes(plan.peak()).c_str());
  }
}

std::string what_fits(const Setup& s, Backend& backend, MemoryLimit limit) {
  const Variant now = variant_of(s);
  std::vector<std::string> ways;
  const auto offer = [&](const std::string& options, const Variant& v) {
    ways.push_back(options + " takes " + format_bytes(largest_peak(s, backend, v)));
  };
  if (const int batch = smaller_batch(s, backend, limit.bytes)) {
    Variant v = now;
    v.local_batch = batch;
    offer("--batch " + std::to_string(batch * s.replicas), v);
  }
  if (const Variant v = more_micro_batches(s, backend, limit.bytes); v.micro_batches)
    offer("--micro-batches " + std::to_string(v.micro_batches), v);
  if (const Variant v = more_stages(s, backend, limit); v.stages)
    offer("-n " + std::to_string(v.stages * s.replicas) + " --pipeline " +
              std::to_string(v.stages) +
              (v.micro_batches != now.micro_batches && s.options.is_explicit("micro_batches")
                   ? " --micro-batches " + std::to_string(v.micro_batches)
                   : ""),
          v);
  Variant recomputing = now;
  recomputing.recompute = true;
  if (!now.recompute && largest_peak(s, backend, recomputing) < limit.bytes)
    offer("--recompute blocks", recomputing);
  return ways.empty() ? "; no batch fits" : "; " + join(ways, ", ");
}

}  // namespace bv
