// A run's set-up, resolved from command line, model, data and processes before memory is allocated.
// All ranks get the same result or the same UserError or DataError.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "engine/files/checkpoint.h"
#include "engine/files/weights.h"
#include "engine/options/config.h"
#include "engine/pipeline/micro_batches.h"
#include "engine/pipeline/pipeline.h"
#include "engine/precision/policy.h"
#include "engine/setup/device.h"
#include "engine/training/trainer.h"
#include "models/graph/graph.h"

namespace bv {

struct Setup {
  Options options;    // every field resolved
  Options requested;  // before batch and precision were fitted to data, processes and device
  ModelConfig model;
  DataSets data{};
  BadImages bad_images{};  // skipped images
  WeightsInfo info;        // the metadata of the run's weights files
  KernelSet kernels = KernelSet::fast;
  Graph graph{DType::fp32};
  std::optional<PrecisionPolicy> precision_policy;  // --amp-policy
  std::optional<Graph> fp32_graph;                  // the same model, for the policy's fp32 epochs
  TrainerOptions trainer{};
  Tensors weights;                       // from --weights or the checkpoint; may be empty
  std::optional<Checkpoint> checkpoint;  // of --resume; its weights are in `weights`
  std::vector<std::string> notes;        // lines for the user
  std::vector<std::string> findings;     // lines of the recipe check, which count as warnings
  int world = 1;                         // processes
  int local_size = 1;                    // processes on this machine
  std::string nodes;                     // which ranks run where, with several machines
  AllReduce all_reduce = AllReduce::flat;
  int replicas = 1;                      // copies of the model, each with its share of a batch
  Pipeline pipeline{};                   // how a copy is cut
  Profile::Clock::time_point started{};  // when this process started

  // Defined in setup.cpp, for the same reason as those of Options.
  Setup();
  Setup(Setup&&) noexcept;
  Setup& operator=(Setup&&) noexcept;
  ~Setup();
};

// Prepares a new or resumed run. request.options.out is the claimed folder; only its name may
// differ between processes (it contains the time of day).
Setup prepare(const Request&, int world, const DeviceChoice&, Backend&);

// Completes the set-up for one process: its stage in the pipeline and its part of the parameters.
Setup for_rank(Setup, int rank);

// Loader options for a replica's share of the batches; leaves `warn` and `allocate` unset.
LoaderOptions loader_options(const Setup&, int replica, int cores);

inline const Graph* pointer_to(const std::optional<Graph>& graph) {
  return graph ? &*graph : nullptr;
}

Graph build_graph(const Options&, const ModelConfig&, DataKind, DType, int local_batch,
                  size_t classes, int replicas);

// The set-up's model in this dtype.
Graph graph_in(const Setup&, DType, int micro_batch);
Micro micro_of(const Options&, const ModelConfig&);

// The largest power of two that gives an epoch of so many images 8 updates or more; at least 1.
int64_t batch_for_eight_updates(int64_t images, int accumulate);

}  // namespace bv
