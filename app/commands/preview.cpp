// preview MODEL: writes training images as the model will see them, as pictures, as a page that
// shows them and as a table.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <span>

#include "app/commands/commands.h"
#include "app/commands/preview_record.h"
#include "app/commands/processes.h"
#include "app/html_report/tables.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "comm/processes/affinity.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "engine/files/new_folder.h"
#include "engine/files/png.h"
#include "engine/model/memory.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

constexpr int max_images = 100000;  // names have five digits
constexpr const char* kinds[] = {"before", "after", "mixed"};
constexpr int min_width = 208;  // of a picture on the page; small ones are enlarged
constexpr std::string_view page_head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
body{margin:24px;font:15px/1.45 system-ui,sans-serif}
main{display:flex;flex-wrap:wrap;gap:24px}
main>div{display:flex;flex-wrap:wrap;gap:8px}
figure{margin:0;overflow-wrap:anywhere}
img{width:100%;image-rendering:pixelated}
)";

struct PreviewOptions {
  std::string out;
  int count = 16;
  int64_t epoch = 1;
};
constexpr OptionRow own_rows[] = {
    {"out", "DIR", field<&PreviewOptions::out>,
     "new folder for preview.html, a page that shows the pictures of each image, "
     "before/ (cropped, resized, flipped), after/ (then operations, jitter, erasing) and mixed/ "
     "(then mixed with its partner's), and batch.jsonl, one object per image; in it, partner is "
     "the number of a picture and of its line, from 0, and target has the classes' probabilities "
     "as the loss takes them, smoothed"},
    {"count", "N", field<&PreviewOptions::count>,
     "number of training images, from the first of the epoch on", between(1, max_images)},
    {"epoch", "E", field<&PreviewOptions::epoch>,
     "epoch of the run to show, counted from 1 as in metrics.jsonl", between(1, max_epochs)}};

void write(const fs::path& path, std::span<const std::byte> bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.finish();
}

class Preview {
 public:
  // at_most: own.count is only a limit; the epoch may have fewer images.
  Preview(const Setup& setup, Backend& backend, const PreviewOptions& own, bool at_most,
          const fs::path& folder, int cores);
  bool run();  // false: a signal asked to stop
  std::string summary() const {
    return counted(count_, "image") + " of epoch " + std::to_string(epoch_ + 1);
  }

 private:
  void show_rank(int rank);
  void show_rows(const Batch&, int shown);
  PreviewRecord seen(const Batch&, int row) const;
  void add(PreviewRecord, const std::array<const uint8_t*, 3>& pictures);  // one per kind
  std::string page() const;

  const Setup& s_;
  Backend& backend_;
  fs::path folder_;
  int64_t count_, epoch_;  // epoch_: from 0
  int size_, cores_;       // size_: of the pictures
  Augmentation augmentation_;
  Preprocessor preprocessor_;
  std::map<int64_t, PreviewRecord> shown_;  // by the image's number
};

Preview::Preview(const Setup& setup, Backend& backend, const PreviewOptions& own, bool at_most,
                 const fs::path& folder, int cores)
    : s_(setup),
      backend_(backend),
      folder_(folder),
      count_(own.count),
      epoch_(own.epoch - 1),
      size_(*setup.options.image_size),
      cores_(cores),
      augmentation_(augmentation_of(setup.options)),
      preprocessor_(*setup.data.train, loader_options(setup, 0, cores), true) {
  const int64_t batch = *setup.options.batch;
  const int64_t batches = training_batches(setup.data.kind, setup.data.train->size(), batch);
  if (at_most) count_ = std::min(count_, batches * batch);
  if (count_ > batches * batch)
    throw UserError("--count " + std::to_string(count_) + ": an epoch has " +
                    counted(batches * batch, "image") + ", " + counted(batches, "batch") + " of " +
                    std::to_string(batch));
}

bool Preview::run() {
  for (const char* kind : kinds) fs::create_directory(folder_ / kind);
  // Skips ranks whose share of the first batch begins after the last image to show.
  for (int rank = 0; rank < s_.replicas && rank * int64_t{*s_.options.local_batch} < count_; ++rank)
    show_rank(rank);
  if (stop_signal()) return false;
  std::string lines;
  for (const auto& [number, image] : shown_)
    lines += line_of(image, static_cast<int>(s_.data.classes.size()), s_.options.label_smoothing);
  write_text_file(folder_ / "batch.jsonl", lines);
  write_text_file(folder_ / "preview.html", page());
  return true;
}

std::string Preview::page() const {
  const std::string title = escape_html(s_.model.name + ", epoch " + std::to_string(epoch_ + 1) +
                                        ", batches of " + std::to_string(*s_.options.batch));
  const int width = (min_width + size_ - 1) / size_ * size_;
  std::string html = std::string(page_head) + "figure{width:" + std::to_string(width) +
                     "px}\n</style>\n<title>" + title + "</title>\n</head>\n<body>\n<h1>" + title +
                     "</h1>\n<p>" + escape_html(augmentation_text(s_.options)) +
                     "</p>\n<p>each image as cropped, resized and flipped; after its operations" +
                     (mixing_of(s_.options).any() ? "; mixed with its partner" : "") +
                     "</p>\n<main>\n";
  for (const auto& [number, image] : shown_) html += figures_of(image, s_.data.classes);
  return html + "</main>\n</body>\n</html>\n";
}

// Shows a process's share of each batch.
void Preview::show_rank(int rank) {
  LoaderOptions options = loader_options(s_, rank, cores_);
  options.prefetch = 1;
  options.warn = [](const std::string& line) { std::cerr << printable(line, line.npos) << '\n'; };
  options.allocate = [this](size_t bytes) { return host_memory(backend_, bytes); };
  Loader loader(*s_.data.train, options, true);
  loader.start(epoch_, 0);
  while (!stop_signal()) {
    const Batch* const next = loader.next_unless([] { return stop_signal() != 0; });
    if (!next) return;
    const Batch& batch = *next;
    const int64_t rest = count_ - batch.position;
    if (rest > 0) show_rows(batch, static_cast<int>(std::min<int64_t>(rest, batch.count)));
    if (rest <= int64_t{*s_.options.batch}) return;
  }
}

PreviewRecord Preview::seen(const Batch& batch, int row) const {
  const auto epoch = static_cast<uint32_t>(epoch_);
  const uint32_t index = batch.indices[row];
  PreviewRecord seen{.number = int64_t{batch.position} + row,
                     .index = index,
                     .epoch = epoch_ + 1,
                     .path = s_.data.train->name(index),
                     .label = batch.labels[row],
                     .crop = preprocessor_.shown(index, epoch),
                     .flip = batch.crops[row].flip != 0,
                     .ops = draw_operations(augmentation_, {s_.options.seed, epoch, index}, size_)};
  if (batch.mixes) {
    seen.mix = batch.mixes[row];
    seen.partner_label = batch.labels[row ^ 1];
  }
  if (!seen.ops.empty() && seen.ops.back().operation == Operation::erase) {
    seen.erase = seen.ops.back().box;
    seen.ops.pop_back();
  }
  return seen;
}

// Shows the first `shown` rows of a batch: as cropped, after the device's operations, and mixed.
void Preview::show_rows(const Batch& batch, int shown) {
  const int rows = batch.mixes ? shown + shown % 2 : shown;  // includes the last row's partner
  const auto count = static_cast<size_t>(rows);
  const size_t picture = 3 * size_t(size_) * static_cast<size_t>(size_);
  const auto uploaded = [&](const void* from, size_t bytes) {
    DeviceMemory memory(backend_, bytes);
    if (bytes > 0) backend_.to_device(memory.data(), from, bytes, nullptr);
    return memory;
  };
  const auto layers = static_cast<size_t>(augmentation_.layers());
  const std::vector<ImageOp> identities(count);
  const size_t stored = 3 * size_t(batch.height) * static_cast<size_t>(batch.width);
  const DeviceMemory images = uploaded(batch.images, count * stored);
  const DeviceMemory crops = uploaded(batch.crops, count * sizeof(Crop));
  const DeviceMemory no_ops = uploaded(identities.data(), count * sizeof(ImageOp));
  const DeviceMemory ops = uploaded(batch.ops, count * layers * sizeof(ImageOp));
  DeviceMemory before(backend_, count * picture), after(backend_, count * picture);
  DeviceMemory next(backend_, count * picture);

  AugmentShape shape{.B = rows,
                     .height = batch.height,
                     .width = batch.width,
                     .size = size_,
                     .layer = 0,
                     .layers = 1};
  const auto apply = [&](const DeviceMemory& out, const DeviceMemory& from, const Crop* cropped,
                         const DeviceMemory& what) {
    backend_.kernels().run(AugmentImages{.out = out.data<uint8_t>(),
                                         .images = from.data<uint8_t>(),
                                         .crops = cropped,
                                         .ops = what.data<ImageOp>(),
                                         .shape = shape},
                           nullptr);
  };
  apply(before, images, crops.data<Crop>(), no_ops);
  shape.height = shape.width = size_;
  apply(after, before, nullptr, no_ops);
  shape.layers = augmentation_.layers();
  for (; shape.layer < shape.layers; ++shape.layer) {
    apply(next, after, nullptr, ops);
    std::swap(next, after);
  }
  backend_.synchronize(nullptr);

  const auto row_of = [&](const DeviceMemory& pictures, int row) {
    return pictures.data<uint8_t>() + static_cast<size_t>(row) * picture;
  };
  std::vector<uint8_t> mixed(picture);
  for (int row = 0; row < shown && !stop_signal(); ++row) {
    const uint8_t* own = row_of(after, row);
    if (batch.mixes)
      mix_pictures(mixed.data(), own, row_of(after, row ^ 1), batch.mixes[row], size_);
    else
      std::copy_n(own, picture, mixed.data());
    add(seen(batch, row), {row_of(before, row), own, mixed.data()});
  }
}

void Preview::add(PreviewRecord image, const std::array<const uint8_t*, 3>& pictures) {
  for (size_t i = 0; i < pictures.size(); ++i)
    write(folder_ / kinds[i] / (number_text(image.number) + ".png"),
          encode_png(pictures[i], size_, size_));
  shown_.emplace(image.number, std::move(image));
}

int preview(const CommandLine& given, const std::vector<std::string>&) {
  if (given.values.contains("resume") && !names_model(given))
    throw UserError("--resume: preview shows what a new run would see; --config " +
                    given.values.at("resume").at(0) + "/config.json shows what that run sees");
  const auto own = own_options<PreviewOptions>(given);
  if (own.out.empty()) throw UserError("preview needs --out DIR, a new folder");
  NewFolder folder("--out", own.out);
  std::optional<EndsOnStopSignals> starting([&folder] { folder.remove(); });
  // The pictures are the same on every device and in every precision.
  CommandLine line = given;
  line.values["device"] = {"cpu"};
  line.values["precision"] = {"auto"};
  std::erase_if(line.values, [](const auto& value) { return value.first.starts_with("amp_"); });
  line.values["amp_policy"] = {"none"};
  const int cores = usable_cores();
  const Request request = read_new_run(line);
  const auto backend = open_backend(DeviceKind::cpu, {.index = 0, .threads = cores});
  const Options& o = request.options;
  const int world = o.nproc.value_or(o.pipeline) * o.nnodes.most;
  const Setup setup = prepare(request, world, {DeviceKind::cpu}, *backend);
  starting.reset();
  Preview preview(setup, *backend, own, !given.own.contains("count"), folder.place(), cores);
  if (!preview.run()) return 128 + stop_signal();
  folder.finish();
  std::cout << "preview: " << preview.summary() << " in " << own.out
            << "; preview.html shows them\n";
  return 0;
}

}  // namespace

constinit const Command preview_command = {
    .name = "preview",
    .usage = "MODEL --out DIR [options]",
    .summary =
        "show what the model will see: training images before and after augmentation, as "
        "image files; with the options of a training run, exactly the images of its epoch",
    .own = own_rows,
    .takes = of_training,
    .run = preview};

}  // namespace bv
