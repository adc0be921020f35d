// What a run is, settled from options, model, data and processes before any memory is taken. All
// ranks come to the same result, and to the same UserError or DataError.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/device.h"
#include "engine/files/checkpoint.h"
#include "engine/files/weights.h"
#include "engine/options/command_line.h"
#include "engine/options/model_config.h"
#include "engine/options/options.h"
#include "engine/training/trainer.h"
#include "models/graph/graph.h"

namespace bv {

struct Setup {
  Options options;  // every field settled
  ModelConfig model;
  DataSets data;
  WeightsInfo info;  // what the run's weights files say of themselves
  Graph graph;
  TrainerOptions trainer;
  std::map<std::string, HostTensor> weights;  // from --weights or the checkpoint; may be empty
  std::optional<Checkpoint> checkpoint;       // of --resume; its weights are above
  std::vector<std::string> notes;             // lines for the user
  int ranks = 1;
};

// From the command line to a run, or to the run that --resume goes on with. Only a new run folder's
// name depends on the process (the time of day); rank 0's is the one that counts.
struct Device {
  const Backend& backend;
  DeviceKind kind;
  std::vector<std::string> notes;  // of its choice, lines for the user
};
Setup prepare(const CommandLine&, int ranks, const Device&);

// The model's graph for `local_batch` images in each of `ranks` processes.
Graph build_graph(const Options&, const ModelConfig&, DType, int local_batch, size_t classes,
                  int ranks);

// The largest local batch whose plan fits into `limit` bytes; 0: none.
int largest_batch(const Setup&, Backend&, size_t limit);

}  // namespace bv
