// eval RUN|WEIGHTS: prints a model's accuracy on labelled images, overall and by class.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <span>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "app/commands/trained_model.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/machine_error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "comm/connect/host_comm.h"
#include "comm/processes/affinity.h"
#include "data/class_names.h"
#include "data/joined.h"
#include "data/left_out.h"
#include "engine/console/class_report.h"
#include "engine/console/progress_line.h"
#include "engine/files/checkpoint_read.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"
#include "engine/setup/image_lists.h"

namespace bv {

namespace {

enum class Split : uint8_t { train, val, all };
constexpr auto words(Split) { return word_list("train", "val", "all"); }

struct EvalOptions : FinishedOptions {
  Split split = Split::val;
  std::string confusion;  // path of the file to write
  bool json = false;
};

constexpr OptionRow rows[] = {
    finished_row<EvalOptions>,
    {"split", "", field<&EvalOptions::split>,
     "which images of the data; training images are also prepared as for evaluation"},
    {"confusion", "FILE", field<&EvalOptions::confusion>,
     "write how many images of each class (rows) are predicted as which (columns), as CSV"},
    {"json", "", field<&EvalOptions::json>,
     "print one JSON object, and all else on standard error"},
    finished_model_row<EvalOptions>,
    finished_classes_row<EvalOptions>};
constexpr std::string_view takes[] = {
    "data",        "val",           "val_fraction", "split_seed", "class_names",   "image_size",
    "mean",        "std",           "crop_mode",    "crop_pct",   "interpolation", "on_bad_image",
    "patch_size",  "batch",         "nproc",        "nnodes",     "node_rank",     "master_addr",
    "master_port", "device",        "precision",    "kernels",    "conv",          "workers",
    "timeout",     "oversubscribe", "no_graph"};

std::string some_names(std::span<const std::string> names) {
  constexpr size_t most = 5;
  return printable(join(names.first(std::min(most, names.size())), ", "), 200) +
         (names.size() > most ? ", ..." : "");
}

// For each class of the data, its label in the weights. The weights may have more classes.
std::vector<int> labels_by_weights(const std::vector<std::string>& data, const TrainedModel& m) {
  std::vector<int> labels;
  const ClassPositions known(m.classes);
  for (const std::string& name : data) {
    const auto at = known.of(name);
    if (!at)
      throw UserError((m.options.data.empty() ? "the built-in data" : m.options.data) +
                      ": its classes (" + some_names(data) + ") are not those of " +
                      m.place.weights + " (" + some_names(m.classes) + ")" +
                      lookalike_of(name, m.classes) +
                      "; --classes FILE says what the data calls the weights' classes, one per "
                      "line in their order");
    labels.push_back(static_cast<int>(*at));
  }
  return labels;
}

std::vector<std::string> skipped_by(const TrainedModel& m) {
  if (m.place.run.empty() || m.options.on_bad_image != OnBadImage::skip) return {};
  return skipped_images(m.place.run, m.options.data);
}

// The run's file of class names is gone. The run has the names in the order of its outputs, which
// is that of the labels unless it was given another; its fingerprint of the data tells.
DataSets open_without_names(const TrainedModel& m, DataOptions options) {
  const std::string gone = "--class-names " + options.class_names + ": no such file";
  options.label_names = options.classes = m.classes;
  DataSets data = open_dataset(options);
  const std::string checkpoint = std::filesystem::path(m.place.weights).parent_path();
  if (data.fingerprint != read_state(checkpoint).progress.data_fingerprint)
    throw UserError(
        gone +
        ", and whether the names that the run has stored are in the order of the data's "
        "labels can't be told; give --class-names FILE");
  data.notes.push_back(gone + " any more; the names are those that the run has stored");
  return data;
}

DataSets open_data(const TrainedModel& m) try {
  const Options& o = m.options;
  if (m.place.run.empty() && o.source("data") == Source::built_in) {
    const std::filesystem::path folder = std::filesystem::path(m.place.weights).parent_path();
    throw UserError(m.place.weights + ": weights have no data of their own; give --data PATH" +
                    (std::filesystem::exists(folder.parent_path() / "config.json")
                         ? ", or " + folder.string() + " for its run's"
                         : ""));
  }
  if (o.data == "synthetic")
    throw UserError(
        "--data synthetic: random pixels say nothing about the weights; give --data PATH");
  require_data_of_run(o);
  DataOptions options = data_options(o);
  options.skipped = skipped_by(m);
  std::error_code error;
  if (m.place.run.empty() || o.class_names.empty() ||
      o.source("class_names") == Source::command_line ||
      std::filesystem::exists(o.class_names, error))
    return open_dataset(options);
  return open_without_names(m, options);
} catch (const DataError& e) {
  const std::string line = e.what();
  const bool unlabelled = line.find("no class folders") != line.npos;
  throw DataError(line + (unlabelled ? "; images without labels are for ./launcher predict" : ""));
}

struct Images {
  std::unique_ptr<Dataset> images;
  DataKind kind{};
  std::vector<std::string> lines;  // for the user
};

// A warning if the validation images differ from those that the run listed; empty if they don't,
// or if the user chose other images.
std::string changed_since(const TrainedModel& m, const Dataset& val, const BadImages& bad) {
  const auto chosen = [&](const char* option) {
    return m.options.source(option) == Source::command_line;
  };
  if (m.place.run.empty() || chosen("data") || chosen("val") || chosen("val_fraction") ||
      chosen("split_seed"))
    return "";
  const std::string list = m.place.run + "/" + val_list_name;
  const ListChange change = change_since(list, val, bad.val).value_or(ListChange{});
  const auto [others, missing] = std::pair(change.others, change.missing);
  if (others == 0 && missing == 0) return "";
  const auto are = [](int64_t n) { return counted(n, "image") + (n == 1 ? " is" : " are"); };
  return "warning: the data has changed since the run: " +
         (others ? are(others) + " not in " + list : "") + (others && missing ? ", " : "") +
         (missing ? are(missing) + " missing that " + (others ? "it" : list) + " lists" : "");
}

// The images that training would leave out before its first step.
BadImages known_bad(const TrainedModel& m, const DataSets& data, int threads) {
  if (m.options.on_bad_image != OnBadImage::skip) return {};
  BadImages bad = find_bad_images(data, [](int64_t) {});
  add_damaged_images(data, skipped_by(m), threads, bad);
  return bad;
}

// Whether all images are evaluated unless the user says which: training has held none of them out.
bool takes_all(const TrainedModel& m, const CommandLine& line, const DataSets& data) {
  for (const char* option : {"split", "val_fraction", "split_seed"})
    if (line.values.contains(option) || line.own.contains(option)) return false;
  if (!data.held_out || (!m.place.run.empty() && !line.values.contains("data"))) return false;
  const std::filesystem::path folder = std::filesystem::path(m.place.weights).parent_path();
  return !there_is(folder / state_name) ||
         data.fingerprint != read_state(folder).progress.data_fingerprint;
}

Images open_split(const TrainedModel& m, const CommandLine& line, Split& which, int threads) {
  DataSets data = open_data(m);
  const bool all = takes_all(m, line, data);
  if (all) which = Split::all;
  const BadImages bad = known_bad(m, data, threads);
  const Options& o = m.options;
  Images split{
      .images = nullptr, .kind = data.kind, .lines = {"data: " + description_without(bad, data)}};
  if (data.held_out && !all)
    split.lines.back() += "; val-fraction " + format_number(o.val_fraction) + ", split seed " +
                          std::to_string(o.split_seed);
  if (all)
    split.lines.push_back(
        "all images are evaluated, training has held none of them out; --split val takes the part "
        "of --val-fraction");
  for (std::string& note : all_notes(data)) split.lines.push_back(std::move(note));
  if (!data.val && which == Split::val)
    throw UserError(o.data + ": has no images for validation; --split train evaluates the others");
  std::vector<std::unique_ptr<Dataset>> parts;
  if (which != Split::val) parts.push_back(std::move(data.train));
  if (which == Split::val)
    if (std::string changes = changed_since(m, *data.val, bad); !changes.empty())
      split.lines.push_back(changes);
  if (which != Split::train && data.val) parts.push_back(std::move(data.val));
  split.images = std::make_unique<Joined>(std::move(parts), labels_by_weights(data.classes, m));
  return split;
}

struct Result {
  EvaluationSums sums;
  std::vector<Prediction> predictions;
  double mean(double sum) const { return sum / sums.count; }
};

Json to_json(const Result& r, const std::vector<std::string>& classes) {
  const auto number = [](double x) { return json_number(x, 9); };
  const std::vector<int64_t> matrix = confusion_matrix(r.predictions, classes.size());
  const std::vector<ClassScores> scores = class_scores(r.predictions, classes.size());
  Json confusion = Json::array(), each = Json::array();
  for (size_t k = 0; k < classes.size(); ++k) {
    confusion.push_back(std::span(matrix).subspan(k * classes.size(), classes.size()));
    each.push_back({{"class", classes[k]},
                    {"precision", number(scores[k].precision)},
                    {"recall", number(scores[k].recall)},
                    {"f1", number(scores[k].f1)},
                    {"support", scores[k].support}});
  }
  return {{"count", number(r.sums.count)},
          {"loss", number(r.mean(r.sums.loss))},
          {"top1", number(r.mean(r.sums.top1))},
          {"top5", number(r.mean(r.sums.top5))},
          {"classes", classes},
          {"confusion", confusion},
          {"per_class", each}};
}

std::string to_text(const Result& r, std::vector<std::string> classes, Split split) {
  const auto hits = [&](const char* name, double sum) {
    char text[96];
    std::snprintf(text, sizeof text, ", %s %.4f (%.0f of %.0f)", name, r.mean(sum), sum,
                  r.sums.count);
    return std::string(text);
  };
  for (std::string& name : classes) name = printable(name, name.npos);
  return word_of(split) + ": " + counted(static_cast<int64_t>(r.sums.count), "image") + ", loss " +
         format_number(r.mean(r.sums.loss), 9) + hits("top-1", r.sums.top1) +
         (classes.size() > 5 ? hits("top-5", r.sums.top5) : "") + "\n\n" +
         class_report(r.predictions, classes);
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw RunError("the result can't be written to standard output");
}

// Refuses to replace anything but a regular file.
void refuse_confusion(const std::string& file) {
  std::error_code error;
  if (const std::filesystem::file_status there = std::filesystem::status(file, error);
      std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    throw UserError("--confusion " + file + " is not a file; name another");
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw UserError("--confusion " + file + ": there is no folder " + folder.string());
}

Result evaluate(Inference& inference, Loader& loader, Backend& backend, Communicator* communicator,
                int64_t images) {
  Result result;
  const bool first = !communicator || communicator->rank() == 0;
  ProgressLine progress;
  inference.begin([&](const BatchOutputs& batch) {
    append_predictions(batch, result.predictions);
    if (first)
      progress.show(counted_of(static_cast<int64_t>(result.predictions.size()), images, "images"));
  });
  run_all(inference, loader);
  result.sums = inference.end();
  result.predictions = gather(std::move(result.predictions), backend, communicator);
  return result;
}

int work(const CommandLine& line, EvalOptions own, Process& p) {
  auto& [world, backend, communicator] = p;
  end_on_stop_signals();
  const int cores = pin_to_share(world);
  refuse_confusion(own.confusion);
  TrainedModel m = open_trained_model(line, own);
  const Images split = open_split(m, line, own.split, cores);
  const DeviceChoice device = choose_device(m.options, world);
  backend = open_trained_backend(m, device, cores);
  const int asked = (m.options.batch.value_or(64) + world.size - 1) / world.size;
  const int batch = m.run_batch > 0 && !m.options.batch ? m.run_batch : smallest_batch(asked);
  const Graph graph = trained_graph(m, device, *backend, batch);
  if (world.size > 1) communicator = connect(world, m.options, {}, device, *backend).communicator;
  Inference inference(*backend, communicator.get(), graph, batch, *m.options.image_size);
  load_trained_weights(m, graph, *backend, inference, world.local_size);
  LoaderOptions options = trained_loader(m, *backend, split.kind, batch, cores);
  options.rank = world.rank;
  options.ranks = world.size;
  Loader loader(*split.images, options, false);

  FILE* const told = own.json ? stderr : stdout;
  if (world.rank == 0) {
    std::vector<std::string> lines = {"weights: " + m.place.weights,
                                      "device: " + backend->describe()};
    lines.insert(lines.end(), split.lines.begin(), split.lines.end());
    lines.insert(lines.end(), m.notes.begin(), m.notes.end());
    for (const std::string& text : lines)
      std::fprintf(told, "%s\n", printable(text, text.npos).c_str());
    std::fflush(told);
  }
  const Result result =
      evaluate(inference, loader, *backend, communicator.get(), split.images->size());
  if (result.sums.count == 0) throw DataError("none of the images can be read");
  if (world.rank != 0) return 0;
  print(own.json ? to_line(to_json(result, m.classes)) + "\n"
                 : to_text(result, m.classes, own.split));
  if (!own.confusion.empty())
    write_text_file(own.confusion, confusion_csv(result.predictions, m.classes));
  return 0;
}

int eval_in_processes(const CommandLine& line, const std::vector<std::string>& argv) {
  const auto own = own_options<EvalOptions>(line);
  const auto options = [&] {
    refuse_confusion(own.confusion);
    return finished_options(line, own);
  };
  return in_processes(line, argv, options, [&](Process& p) { return work(line, own, p); });
}

}  // namespace

constinit const Command eval_command = {
    .name = "eval",
    .usage = "[-n N] RUN|WEIGHTS [--data PATH] [options]",
    .summary =
        "print loss, accuracy and a report of each class, for a run by default on its own "
        "validation "
        "images; options default to the run's, or to those in the weights' file",
    .own = rows,
    .takes = takes,
    .run = eval_in_processes,
    .in_processes = true};

}  // namespace bv
