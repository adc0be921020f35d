#include "app/commands/trained_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/commands/processes.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "data/class_names.h"
#include "data/decode/image_extensions.h"
#include "engine/console/progress_line.h"
#include "engine/files/checkpoint.h"
#include "engine/files/checkpoint_read.h"
#include "engine/model/memory.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"
#include "engine/options/weights_name.h"
#include "engine/setup/kernels.h"
#include "engine/training/recording.h"
#include "engine/weights/hub_names.h"
#include "engine/weights/model_tensors.h"
#include "engine/weights/weights_cache.h"
#include "models/family.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

// Resets the options that only training uses.
void forget_training(Options& o) {
  const Options fresh;
  o.train_crop = TrainCrop::none;
  o.hflip = 0;
  o.auto_augment = fresh.auto_augment;
  o.ra_magnitude = 0;
  o.color_jitter = fresh.color_jitter;
  o.random_erase = 0;
  o.drop_rate = o.pos_drop_rate = o.proj_drop_rate = o.attn_drop_rate = o.drop_path_rate = 0;
  o.label_smoothing = 0;
  o.sync_bn = o.zero_init_last = false;
}

struct RunsOptions {
  Options options;
  int batch = 0;
  std::optional<DeviceKind> device;
};

RunsOptions options_of(const FinishedPlace& place, const CommandLine& line) {
  RunsOptions run;
  Options& o = run.options;
  if (!place.run.empty()) {
    o = options_of_run(place.run);
    run.batch = o.batch.value_or(64) / o.nproc.value_or(1);
    run.device = o.device;
    if (o.device == DeviceKind::cuda) o.device.reset();
    o.nproc.reset();
    o.batch.reset();
  }
  std::error_code ignored;
  if (line.values.contains("data") &&  // val and class_names belong to the run's --data
      !std::filesystem::equivalent(line.values.at("data").back(), o.data, ignored)) {
    o.val.clear();
    o.class_names.clear();
  }
  set_from_command_line(o, line);
  forget_training(o);
  if (!o.bucket_bytes) o.bucket_bytes = 4 << 20;  // any size holds an evaluation's sums
  return run;
}

std::vector<std::string> numbered(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// The value of --classes: a number, or a file of names.
std::vector<std::string> read_classes(const std::string& given) {
  if (const auto count = parse_integer(given)) {
    if (*count < 2 || *count > 1000000)
      throw UserError("--classes " + given + ": must be at least 2 and at most 1000000");
    return numbered(*count);
  }
  if (!there_is(given) && given.find(',') != given.npos)
    throw UserError("--classes " + given +
                    ": no such file; here it is a file with a name per line");
  return read_class_names(given);
}

// The number of classes of the weights' head; 0: the file has no head.
int64_t outputs_of(const TensorFile& file, const ModelConfig& model) {
  const std::string head = model.family->heads(model.sizes)[0] + ".weight";
  for (const auto& [name, tensor] : file.tensors)
    if ((name == head || name.ends_with("." + head)) && tensor.shape.size() == 2)
      return tensor.shape[0];
  return 0;
}

std::vector<std::string> classes_of(const TrainedModel& m, const WeightsInfo& info,
                                    const std::string& given) {
  const std::string& path = m.place.weights;
  if (given.empty() && info.classes.empty())
    throw UserError(path +
                    ": doesn't name its classes; --classes FILE does, one per line in the "
                    "order of the outputs, or --classes N just numbers them");
  const std::vector<std::string> names = given.empty() ? info.classes : read_classes(given);
  const int64_t outputs = outputs_of(m.file, m.model);
  if (outputs > 0 && outputs != static_cast<int64_t>(names.size()))
    throw UserError((given.empty() ? path + ": names " : "--classes " + given + ": ") +
                    counted(static_cast<int64_t>(names.size()), "class") + ", the weights have " +
                    std::to_string(outputs) + " outputs");
  return names;
}

ModelConfig model_of(const FinishedPlace& place, const WeightsInfo& info, const Options& o,
                     const std::string& given) {
  if (!given.empty() && info.model && *info.model != given)
    throw UserError(place.weights + ": weights of " + printable(*info.model) + ", not of " + given);
  if (!given.empty()) return load_model_config(given);
  if (info.model && !place.run.empty() && *info.model != o.model)
    throw UserError(config_of(place.run) + ": its model is " + printable(o.model) + ", but " +
                    place.weights + " has weights of " + printable(*info.model) +
                    "; put it back, or give --model " + shell_word(*info.model));
  if (info.model) return load_model_config(*info.model, place.weights + ": ");
  if (!o.model.empty())
    return load_model_config(o.model, place.run.empty() ? "" : config_of(place.run) + ": ");
  throw UserError(place.weights +
                  ": doesn't say which model's weights it has; give --model, one of " +
                  join(known_models(), ", "));
}

// The tensors of the model that the user or the run names; empty: neither does.
std::vector<ParameterShape> tensors_of_model(const Options& o, const std::string& given) {
  const std::string& name = given.empty() ? o.model : given;
  if (name.empty()) return {};
  return parameter_shapes(load_model_config(name), {.image_size = o.image_size.value_or(0),
                                                    .patch_size = o.patch_size.value_or(0)});
}

// Takes the value from the first source that has it: command line, weights, run, model.
template <class T, class Given>
void resolve(const Options& o, std::string_view name, T& value,
             const std::optional<Given>& weights) {
  if (o.source(name) != Source::command_line && weights) value = *weights;
}

}  // namespace

FinishedPlace find_finished(const std::string& given) {
  if (names_public_weights(given)) return {.weights = given, .run = ""};
  std::error_code error;
  const auto [path, key] = split_key(given);
  if (const std::string link = link_without_target(path); !link.empty())
    throw UserError(given + ": " + link);
  if (!there_is(path))
    throw UserError(given + ": no such run folder or weights file" +
                    (run_above(path).empty() ? advice_for_weights(given) : run_above(path)));
  if (!fs::is_directory(path, error)) {
    if (is_read(extension_of(path)))
      throw UserError(given + ": an image; first comes a run or weights: ./launcher predict RUN " +
                      given);
    return {.weights = given, .run = ""};
  }
  if (const std::string file = weights_file_in(path); !file.empty() && !there_is(path + "/last"))
    return {.weights = file + (key.empty() ? "" : ":" + key), .run = ""};
  if (!key.empty()) throw UserError(given + ": a run's weights have no parts with names");
  const fs::path folder = fs::path(path + "/").parent_path(),
                 above = (folder / "..").lexically_normal();
  if (there_is(folder / weights_name) || there_is(folder / state_name))
    return {.weights = weights_in(folder),
            .run = there_is(above / "config.json") ? above.string() : ""};
  if (!there_is(folder / "config.json"))
    throw UserError(given +
                    ": not a run's folder, it has no config.json; give one, its best/, or "
                    "a .safetensors or .pth file");
  if (!has_checkpoint(folder))
    throw UserError(given + ": this run has no checkpoint yet, there is no " +
                    (folder / "last" / weights_name).string());
  const std::string checkpoint = last_checkpoint(folder), last = folder / "last";
  return {.weights = weights_in(checkpoint),
          .run = folder,
          .note = checkpoint == last
                      ? ""
                      : last + " is missing; the newest checkpoint is " + checkpoint};
}

Options finished_options(const CommandLine& line, const FinishedOptions& own) {
  return options_of(find_finished(own.finished), line).options;
}

TrainedModel open_trained_model(const CommandLine& line, const FinishedOptions& own) {
  TrainedModel m{.place = find_finished(own.finished)};
  RunsOptions run = options_of(m.place, line);
  Options& o = m.options = std::move(run.options);
  if (!m.place.note.empty()) m.notes.push_back(m.place.note);
  m.run_batch = run.batch;
  m.run_device = run.device;
  m.file = read_weights_file(m.place.weights, [&] { return tensors_of_model(o, own.model); });
  const WeightsInfo info = weights_info(m.file, m.place.weights);
  m.model = model_of(m.place, info, o, own.model);
  o.model = m.model.name;
  o.weights = m.place.weights;
  resolve(o, "image_size", o.image_size, info.image_size);
  if (m.model.family->patches) resolve(o, "patch_size", o.patch_size, info.patch_size);
  o.representation_size = representation_size(m.file);
  resolve(o, "mean", o.mean, info.mean);
  resolve(o, "std", o.std, info.std);
  resolve(o, "crop_mode", o.crop_mode, info.crop_mode);
  resolve(o, "crop_pct", o.crop_pct, info.crop_pct);
  resolve(o, "interpolation", o.interpolation, info.interpolation);
  if (!o.mean) o.mean = m.model.mean;
  if (!o.std) o.std = m.model.std;
  resolve_sizes(o, m.model, DataKind::photos);
  m.classes = classes_of(m, info, own.classes);
  return m;
}

std::unique_ptr<Backend> open_trained_backend(TrainedModel& m, DeviceChoice device, int cores) {
  m.kernels = resolve_kernels(m.options, device);
  m.notes.insert(m.notes.end(), device.notes.begin(), device.notes.end());
  return open_backend(device.kind, {.index = device.index,
                                    .threads = cores,
                                    .graphs = !m.options.no_graph,
                                    .kernels = m.kernels});
}

Graph trained_graph(TrainedModel& m, const DeviceChoice& device, Backend& backend, int batch) {
  Options& o = m.options;
  o.device = device.kind;
  if (o.source("precision") != Source::command_line && o.device != m.run_device)
    o.precision.reset();
  const DType dtype = resolve_precision(o, backend, device.kind);
  Graph graph = build_graph(o, m.model, DataKind::photos, dtype, batch, m.classes.size(), 1);
  if (m.kernels == KernelSet::hopper)
    m.notes.push_back(hopper_line(record_forward(graph, batch, *o.image_size), backend.kernels()));
  return graph;
}

void load_trained_weights(TrainedModel& m, const Graph& graph, Backend& backend,
                          Inference& inference, int processes) {
  const FitResult fit =
      fit_weights(std::exchange(m.file, {}), m.place.weights, parameter_shapes(graph), {});
  if (!fit.note.ends_with(" tensors")) m.notes.push_back(fit.note);  // fitting changed something
  const bool shared = m.options.device == DeviceKind::cpu || m.options.oversubscribe;
  const size_t limit = backend.memory_limit() / static_cast<size_t>(shared ? processes : 1);
  if (inference.bytes() > limit)
    throw UserError("this needs " + format_bytes(inference.bytes()) + " per process, but " +
                    format_bytes(limit) + " is available; a smaller --batch needs less");
  inference.allocate();
  inference.parameters().set_weights(fit.tensors);
}

LoaderOptions trained_loader(const TrainedModel& m, Backend& backend, DataKind kind, int batch,
                             int cores) {
  LoaderOptions options = loader_options(m.options, kind, batch, cores);
  options.warn = [](const std::string& line) {
    print_error_line((isatty(STDERR_FILENO) ? clear_line : "") + printable(line, line.npos));
  };
  options.allocate = [&backend](size_t bytes) { return host_memory(backend, bytes); };
  return options;
}

void run_all(Inference& inference, Loader& loader) {
  loader.start(0, 0);
  for (int64_t k = 0; k < loader.batches_per_epoch(); ++k) {
    inference.wait_for_upload();
    inference.run(loader.next());
  }
}

}  // namespace bv
