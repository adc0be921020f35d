#include "engine/pipeline/tasks.h"

#include <algorithm>

namespace bv {
namespace {

// The n-th forward or backward task of any stage.
Task nth(const PipelineShape& shape, bool forward, int n) {
  const int P = shape.stages, V = shape.chunks;
  const int chunk = n / P % V;
  return {forward, forward ? chunk : V - 1 - chunk, n / (P * V) * P + n % P};
}

}  // namespace

int warm_up(const PipelineShape& shape, int stage) {
  const int after = shape.stages - 1 - stage;
  return std::min(shape.chunks == 1 ? after : 2 * after + (shape.chunks - 1) * shape.stages,
                  shape.chunks * shape.micro_batches);
}

std::vector<Task> schedule(const PipelineShape& shape, int stage) {
  const int passes = shape.chunks * shape.micro_batches, first = warm_up(shape, stage);
  std::vector<Task> tasks;
  for (int n = 0; n < passes + first; ++n) {
    if (n < passes) tasks.push_back(nth(shape, true, n));
    if (n >= first) tasks.push_back(nth(shape, false, n - first));
  }
  return tasks;
}

std::vector<Round> rounds(const PipelineShape& shape, int stage) {
  const std::vector<Task> tasks = schedule(shape, stage);
  std::vector<Round> rounds(tasks.size() + 1);
  const auto add = [&](size_t round, bool send, const Task& task) {
    const int other = shape.part_of(stage, task.chunk) + (task.forward == send ? 1 : -1);  // a part
    if (other >= 0 && other < shape.parts())
      rounds[round].push_back({send, task, other % shape.stages});
  };
  const auto alone = static_cast<size_t>(warm_up(shape, stage));  // unpaired tasks at either end
  for (size_t i = 0, count; i < tasks.size(); i += count) {
    count = shape.chunks > 1 && i >= alone && i < tasks.size() - alone ? 2 : 1;
    for (size_t k = i; k < i + count; ++k) add(i, false, tasks[k]);
    for (size_t k = i; k < i + count; ++k) add(i + count, true, tasks[k]);
  }
  return rounds;
}

std::vector<int> slots(const PipelineShape& shape, int stage) {
  const std::vector<Task> tasks = schedule(shape, stage);
  const std::vector<Round> exchanges = rounds(shape, stage);
  std::vector<int> flying(static_cast<size_t>(shape.chunks)), most = flying;
  const auto enters = [&](int chunk) {
    const auto c = static_cast<size_t>(chunk);
    most[c] = std::max(most[c], ++flying[c]);
  };
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (const Message& m : exchanges[i])
      if (!m.send && m.task.forward) enters(m.task.chunk);
    const Task& task = tasks[i];
    if (!task.forward)
      --flying[static_cast<size_t>(task.chunk)];
    else if (shape.part_of(stage, task.chunk) == 0)  // its input needs no exchange
      enters(task.chunk);
  }
  return most;
}

}  // namespace bv
