// Opens the RUN or WEIGHTS argument of eval and predict.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/inference/inference.h"
#include "engine/options/command_line.h"
#include "engine/options/model_config.h"
#include "engine/setup/device.h"
#include "engine/setup/setup.h"

namespace bv {

// The options that both commands have.
struct FinishedOptions {
  std::string finished;  // a run's folder or a weights file
  std::string model;
  std::string classes;  // a number, or a file of names
};
// The option rows of both commands; S is the command's own struct, derived from FinishedOptions.
template <class S>
constexpr OptionRow finished_row =
    positional("finished", "RUN|WEIGHTS", field<&S::finished, S>,
               "a run's folder for its last checkpoint, RUN/best for its best one, or a "
               ".safetensors or .pth file, ours, timm's or torchvision's (FILE:KEY: that part of "
               "it), or timm/NAME or torchvision/NAME (weights list). For a run with --ema, the "
               "average of the weights");
template <class S>
constexpr OptionRow finished_model_row = {
    "model", "MODEL", field<&S::model, S>,
    "the model of the weights; default: as stated in their file"};
template <class S>
constexpr OptionRow finished_classes_row = {
    "classes", "FILE", field<&S::classes, S>,
    "names of the weights' classes in their order, one per line, or just their number; default: "
    "the names in the weights' file"};

// The files that the argument RUN|WEIGHTS stands for.
struct FinishedPlace {
  std::string weights;  // the weights file
  std::string run;      // its run's folder; empty: a file without a run
  std::string note;     // a line for the user; may be empty
};
// Throws UserError if the argument is neither a run nor a weights file.
FinishedPlace find_finished(const std::string& given);

struct TrainedModel {
  FinishedPlace place;
  Options options;  // of the run or the weights' metadata; the command line wins
  ModelConfig model;
  std::vector<std::string> classes;      // of the outputs, in their order
  int run_batch = 0;                     // images per process of the run; 0: no run
  std::optional<DeviceKind> run_device;  // the only device to which the run's precision applies
  KernelSet kernels = KernelSet::fast;   // of the backend
  TensorFile file;

  std::vector<std::string> notes;  // lines for the user
};
// Returns only the options, without reading the weights, for the launcher. Throws UserError.
Options finished_options(const CommandLine&, const FinishedOptions&);
TrainedModel open_trained_model(const CommandLine&, const FinishedOptions&);

std::unique_ptr<Backend> open_trained_backend(TrainedModel&, DeviceChoice, int cores);
// A batch of at least `asked` images; a graph with batch norm needs at least two.
inline int smallest_batch(int asked) { return std::max(asked, 2); }
// Resolves device and precision. batch: of this process.
Graph trained_graph(TrainedModel&, const DeviceChoice&, Backend&, int batch);
// Allocates memory and sets the weights, then drops those of the TrainedModel. `processes` on this
// machine have equal shares of the host's memory, or with --oversubscribe of a GPU's. Throws
// UserError if this process needs more.
void load_trained_weights(TrainedModel&, const Graph&, Backend&, Inference&, int processes);
// Prepares images as for an evaluation.
LoaderOptions trained_loader(const TrainedModel&, Backend&, DataKind, int batch, int cores);
// Computes the outputs of all batches, between begin() and end().
void run_all(Inference&, Loader&);

}  // namespace bv
