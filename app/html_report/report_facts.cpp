#include "app/html_report/report_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/html_report/markup/data_uri.h"
#include "app/html_report/repeat.h"
#include "engine/run/augmented.h"

namespace bv {
namespace {

constexpr size_t max_mistakes = 16, max_tensors = 500;
constexpr int max_training = 8, thumbnail = 96;  // pixels

std::vector<ScratchTensor> scratch_of(const Run& run) {
  std::vector<ScratchTensor> tensors;
  const ModelChunk& chunk = run.trainer.largest_chunk();
  const Layout& layout = chunk.layout();
  for (size_t s = 0; s < layout.places.size(); ++s) {
    const Layout::Place& place = layout.places[s];
    if (place.kind != Layout::Place::scratch) continue;
    for (const Life& life : place.live_ranges)
      tensors.push_back({chunk.graph().tensors()[s].name, static_cast<int64_t>(place.offset),
                         static_cast<int64_t>(place.bytes), life.first, life.last});
  }
  std::ranges::stable_sort(tensors, std::greater{}, &ScratchTensor::bytes);
  if (tensors.size() > max_tensors) tensors.resize(max_tensors);
  return tensors;
}

std::vector<std::pair<std::string, double>> memory_of(const MemoryPlan& plan) {
  std::vector<std::pair<std::string, double>> parts;
  for (const auto& [name, bytes] : {std::pair{"weights", plan.weights},
                                    {"gradients", plan.gradients},
                                    {"optimizer state", plan.optimizer},
                                    {"moving average of weights", plan.ema},
                                    {"16-bit copy of weights", plan.compute_weights},
                                    {"saved activations", plan.activations},
                                    {"scratch", plan.scratch},
                                    {"batches", plan.batches},
                                    {"checkpoints, on the host", plan.checkpoints}})
    if (bytes > 0) parts.emplace_back(name, static_cast<double>(bytes));
  return parts;
}

// Within the data's folder, where the name is a path.
std::string short_name(const Run& run, const std::string& name) {
  const std::string root = run.setup.options.data + "/";
  return name.starts_with(root) ? name.substr(root.size()) : name;
}

Mistake mistake_of(const Run& run, const Prediction& p) {
  const Dataset& images = *run.setup.data.val;
  Mistake mistake{.name = short_name(run, images.name(p.index)),
                  .label = p.label,
                  .predicted = p.top,
                  .probability = p.probability};
  try {
    mistake.picture = data_uri(images.image(p.index, thumbnail), thumbnail);
  } catch (const BadImage&) {  // it went away since it was evaluated
  }
  return mistake;
}

}  // namespace

RunFacts facts_of(const Run& run) {
  const Setup& s = run.setup;
  return {.model = s.model.name,
          .data = s.data.description,
          .device = run.backend.describe(),
          .command = repeat_command(s.options, s.model, s.data.kind),
          .parameters = static_cast<int64_t>(s.graph.parameter_count()),
          .processes = s.world,
          .updates_per_epoch = run.updates_per_epoch,
          .steps_end = run.end,
          .classes = s.data.classes,
          .memory = memory_of(run.trainer.plan()),
          .forward_nodes = static_cast<int>(s.graph.nodes().size()),
          .scratch = scratch_of(run)};
}

Evaluated evaluated_of(const Run& run, bool averaged) {
  Evaluated e{.step = run.progress.step, .averaged = averaged};
  std::map<std::pair<int, int>, int64_t> counts;
  for (const Prediction& p : run.trainer.predictions()) ++counts[{p.label, p.top}];
  for (const auto& [pair, images] : counts) e.images.push_back({pair.first, pair.second, images});
  for (const Prediction& p : surest_mistakes(run.trainer.predictions(), max_mistakes))
    e.mistakes.push_back(mistake_of(run, p));
  return e;
}

std::vector<std::string> training_pictures_of(const Run& run) {
  const int size = *run.setup.options.image_size;
  const int count = std::min(max_training, *run.setup.options.local_batch / 2 * 2);
  if (count == 0) return {};
  const std::vector<uint8_t> pixels = first_training_images(run.backend, run.setup, count);
  const auto bytes = static_cast<ptrdiff_t>(pixels.size()) / count;
  std::vector<std::string> pictures;
  for (auto first = pixels.begin(); first != pixels.end(); first += bytes)
    pictures.push_back(data_uri({size, size, {first, first + bytes}}, thumbnail));
  return pictures;
}

}  // namespace bv
