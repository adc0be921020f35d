// predict RUN|WEIGHTS FILES|FOLDERS: prints a model's predictions for pictures.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "app/commands/trained_model.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/json.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "comm/processes/affinity.h"
#include "data/joined.h"
#include "engine/console/progress.h"
#include "engine/console/progress_line.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

struct PredictOptions : FinishedOptions {
  std::vector<std::string> files;
  int topk = 5;
  bool json = false;
};
constexpr OptionRow rows[] = {
    finished_row<PredictOptions>,
    positional("files", "FILES|FOLDERS", field<&PredictOptions::files>,
               "images, folders with all images below them, sorted, and records"),
    {"topk", "N", field<&PredictOptions::topk>,
     "how many classes to show, the likeliest first; default on a terminal: as many as fit into a "
     "line, at most 5",
     between(1, 1e6)},
    {"json", "", field<&PredictOptions::json>, "print one JSON object per line, with the logits"},
    finished_model_row<PredictOptions>,
    finished_classes_row<PredictOptions>};
constexpr std::string_view takes[] = {
    "image_size", "mean",   "std",       "crop_mode", "crop_pct", "interpolation", "patch_size",
    "batch",      "device", "precision", "kernels",   "conv",     "workers",       "no_graph"};

struct Named {
  std::vector<std::unique_ptr<Dataset>> parts;
  std::vector<std::string> problems;  // "a.jpg: no such file"
  std::vector<std::string> notes;     // on what folders have besides

  void end_files() {
    if (!files.empty()) parts.push_back(open_files(std::exchange(files, {})));
  }
  std::vector<std::string> files;  // files of the next part
};

Named find_pictures(const std::vector<std::string>& given) {
  Named found;
  for (const std::string& path : given) {
    std::error_code error;
    if (!there_is(path)) {
      const std::string link = link_without_target(path);
      found.problems.push_back(path + ": " + (link.empty() ? "no such file or folder" : link));
    } else if (is_records(path)) {
      found.end_files();
      for (auto& part : open_recorded(path, found.problems, found.notes))
        found.parts.push_back(std::move(part));
    } else if (fs::is_directory(path, error)) {
      const std::vector<std::string> below = pictures_in(path, found.notes);
      if (below.empty()) found.problems.push_back(path + ": no images in this folder");
      found.files.insert(found.files.end(), below.begin(), below.end());
    } else {
      found.files.push_back(path);
    }
  }
  found.end_files();
  return found;
}

// The line of output for one picture.
class Line {
 public:
  // width: of the terminal, which limits the classes shown; 0: no limit.
  Line(std::vector<std::string> classes, const Dataset& images, const PredictOptions& o, int width)
      : classes_(std::move(classes)), json_(o.json) {
    shown_ = std::min(static_cast<size_t>(o.topk), classes_.size());
    constexpr size_t widest_path = 60, widest_name = 24;
    for (int64_t i = 0; i < images.size() && path_width_ < widest_path; ++i)
      path_width_ = std::max(path_width_, images.name(i).size());
    for (const std::string& name : classes_) name_width_ = std::max(name_width_, name.size());
    path_width_ = std::min(path_width_, widest_path);
    name_width_ = std::min(name_width_, widest_name);
    const size_t class_width = 2 + name_width_ + std::strlen(" 0.1234");
    if (const auto columns = static_cast<size_t>(width); columns > 0)
      shown_ =
          std::clamp((columns - std::min(columns, path_width_)) / class_width, size_t{1}, shown_);
  }

  std::string operator()(const std::string& path, std::span<const float> logits) const {
    const std::vector<double> probabilities = softmax(logits);
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto likelier = [&](size_t a, size_t b) {
      return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
    };
    std::ranges::partial_sort(order, order.begin() + static_cast<ptrdiff_t>(shown_), likelier);
    order.resize(shown_);
    return json_ ? object(path, logits, probabilities, order) : row(path, probabilities, order);
  }

 private:
  using Numbers = std::vector<double>;

  std::string object(const std::string& path, std::span<const float> logits,
                     const Numbers& probabilities, const std::vector<size_t>& order) const {
    const auto number = [](double x) { return json_number(x, 9); };
    Json top = Json::array(), all = Json::array();
    for (const size_t k : order) top.push_back({classes_[k], number(probabilities[k])});
    for (const float logit : logits) all.push_back(number(double{logit}));
    return to_line({{"path", path},
                    {"class", classes_[order[0]]},
                    {"index", order[0]},
                    {"probability", number(probabilities[order[0]])},
                    {"topk", top},
                    {"logits", all}}) +
           "\n";
  }

  std::string row(const std::string& path, const Numbers& probabilities,
                  const std::vector<size_t>& order) const {
    const auto padded = [](const std::string& text, size_t width) {
      const std::string safe = printable(text, text.npos);
      return safe + std::string(width - std::min(width, safe.size()), ' ');
    };
    std::string text = padded(path, path_width_);
    for (const size_t k : order) {
      char probability[32];
      std::snprintf(probability, sizeof probability, " %.4f", probabilities[k]);
      text += "  " + padded(classes_[k], name_width_) + probability;
    }
    return text + "\n";
  }

  std::vector<std::string> classes_;
  bool json_;
  size_t shown_, path_width_ = 0, name_width_ = 0;
};

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw RunError(std::string("standard output can't be written: ") + std::strerror(errno));
}

int predict(const CommandLine& line, const std::vector<std::string>&) {
  std::signal(SIGPIPE, SIG_DFL);  // `predict ... | head` ends quietly
  const int cores = pin_to_share({});
  const auto own = own_options<PredictOptions>(line);
  find_finished(own.finished);  // images before the run: that is the mistake to name
  Named named = find_pictures(own.files);
  for (const std::string& note : named.notes) print_error_line(printable(note, note.npos));
  if (named.parts.empty())
    throw UserError(named.problems[0] +
                    (named.problems.size() > 1
                         ? " (and " + std::to_string(named.problems.size() - 1) + " more)"
                         : ""));
  const Joined images(std::move(named.parts));
  TrainedModel m = open_trained_model(line, own);
  m.options.on_bad_image = OnBadImage::skip;
  const DeviceChoice device = choose_device(m.options, {});
  const auto backend = open_trained_backend(m, device, cores);
  const int batch = smallest_batch(
      static_cast<int>(std::min<int64_t>(m.options.batch.value_or(32), images.size())));
  const Graph graph = trained_graph(m, device, *backend, batch);
  Inference inference(*backend, nullptr, graph, batch, *m.options.image_size);
  load_trained_weights(m, graph, *backend, inference, 1);
  for (const std::string& note : m.notes) print_error_line(printable(note, note.npos));
  for (const std::string& problem : named.problems)
    print_error_line(printable(problem, problem.npos));

  Loader loader(images, trained_loader(m, *backend, DataKind::photos, batch, cores), false);
  const bool limited = isatty(STDOUT_FILENO) && !line.own.contains("topk") && !own.json;
  const Line line_of(m.classes, images, own, limited ? terminal_width() : 0);
  int64_t done = 0;
  {
    ProgressLine progress;
    inference.begin([&](const BatchOutputs& outputs) {
      std::string text;
      for (int row = 0; row < outputs.count; ++row) {
        if (outputs.labels[static_cast<size_t>(row)] < 0) continue;
        ++done;
        text += line_of(images.name(outputs.first + row), outputs.logits_of(row));
      }
      print(text);
      progress.show(counted_of(outputs.first + outputs.count, images.size(), "images"));
    });
    run_all(inference, loader);
    inference.end();
  }
  if (done == 0) return 2;
  return done < images.size() || !named.problems.empty() ? 1 : 0;
}

}  // namespace

constinit const Command predict_command = {
    .name = "predict",
    .usage = "RUN|WEIGHTS FILES|FOLDERS [options]",
    .summary =
        "classify images, which need no labels; options default to the run's, or to those in the "
        "weights' file",
    .own = rows,
    .takes = takes,
    .run = predict};

}  // namespace bv
