// The RUN or WEIGHTS that eval and predict work with.
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

// The options that both commands take.
struct FinishedOptions {
  std::string finished;  // a run's folder or a weights file
  std::string model;
  std::string classes;  // a number, or a file of names
};
// The rows of both commands; S is the command's own struct, made of FinishedOptions.
template <class S>
constexpr OptionRow finished_row = {
    .name = "finished",
    .metavar = "RUN|WEIGHTS",
    .field = field<&S::finished, S>,
    .help =
        "a run's folder, for its last checkpoint; RUN/best, for its best; or a .safetensors "
        "file, ours, timm's or torchvision's. Of a run with --ema, the average of the weights",
    .positional = true};
template <class S>
constexpr OptionRow finished_model_row = {
    .name = "model",
    .metavar = "MODEL",
    .field = field<&S::model, S>,
    .help = "what the weights are of; default: what their file says"};
template <class S>
constexpr OptionRow finished_classes_row = {
    .name = "classes",
    .metavar = "FILE",
    .field = field<&S::classes, S>,
    .help =
        "names of the weights' classes in their order, one a line, or just their number; "
        "default: the names in the weights' file"};

// Files that the argument RUN|WEIGHTS stands for.
struct FinishedPlace {
  std::string weights;  // the file
  std::string run;      // its run's folder; empty: it is given by itself
};
// Throws UserError where there is neither.
FinishedPlace find_finished(const std::string& given);

struct TrainedModel {
  FinishedPlace place;
  Options options;  // the run's, or what the weights say; the command line's win
  ModelConfig model;
  std::vector<std::string> classes;      // of the outputs, in their order
  int run_batch = 0;                     // of each of the run's processes; 0: there is no run
  std::optional<DeviceKind> run_device;  // cuda: and its precision
  TensorFile file;

  std::vector<std::string> notes;  // lines for the user
};
// The options alone, without reading the weights: for the launcher. Throws UserError.
Options finished_options(const CommandLine&, const FinishedOptions&);
TrainedModel open_trained_model(const CommandLine&, const FinishedOptions&);

std::unique_ptr<Backend> open_trained_backend(TrainedModel&, DeviceChoice, int cores);
// A batch of at least `asked` images; a graph with batch norm needs two.
inline int smallest_batch(int asked) { return std::max(asked, 2); }
// Resolves device and precision. The graph's batch is this process's.
Graph trained_graph(TrainedModel&, const DeviceChoice&, const Backend&, int batch);
// Takes the memory, of a machine that `processes` share, and sets the weights, which are dropped.
// Throws UserError where they don't fit.
void load_trained_weights(TrainedModel&, const Graph&, Backend&, Inference&, int processes);
// Images as an evaluation sees them.
LoaderOptions trained_loader(const TrainedModel&, Backend&, DataKind, int batch, int cores);

}  // namespace bv
