#include "app/hooks/tensorboard.h"

#if BAREVISION_TENSORBOARD
#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>
#include <vector>

#include "app/hooks/evaluation_pictures.h"
#include "base/error.h"
#include "base/text.h"
#include "engine/files/png.h"
#include "engine/options/option_values.h"
#include "engine/run/augmented.h"

namespace bv {
namespace {

constexpr double mebi = 1 << 20;

}  // namespace

// Calls add(EventFile&) in the background.
template <class F>
void TensorBoard::write(Run& run, F add) {
  tell_failure(run);
  if (!file_) return;
  jobs_.post(run.background, [file = file_, add = std::move(add)] {
    add(*file);
    file->flush();
  });
}

// Reports a log that can't be written, and closes it; training continues.
void TensorBoard::tell_failure(Run& run) {
  const std::string line = jobs_.failure();
  if (line.empty()) return;
  file_.reset();
  run.warn(line + "; training continues, without TensorBoard's file");
  run.incomplete = true;
}

void TensorBoard::before_train(Run& run) {
  const int64_t first = run.progress.step + 1;
  if (first > run.end && run.progress.settled) return;  // nothing to do, nothing to log
  try {
    file_ = std::make_shared<EventFile>(run.setup.options.out, first);
  } catch (const RunError& e) {
    run.warn(std::string(e.what()) + "; training continues, without TensorBoard's file");
    run.incomplete = true;
    return;
  }
  write_options(run, first);
  if (run.progress.step == 0) write_first_images(run);
}

void TensorBoard::after_train(Run& run) {
  run.background.wait();
  tell_failure(run);
}

void TensorBoard::write_options(Run& run, int64_t step) {
  std::string table = "| option | value |\n| --- | --- |\n";
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.uses.stored)
        table += "| " + row.flag() + " | " +
                 printable(join(items_of(run.setup.options, row), ",")) + " |\n";
  std::vector<HParam> parameters;
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.uses.kept || row.name == "model")
        if (const std::string value = join(items_of(run.setup.options, row), ","); !value.empty())
          parameters.push_back({std::string(row.name), value});
  const std::string folder =
      std::filesystem::path(run.setup.options.out).lexically_normal().filename().string();
  write(run, [=](EventFile& file) {
    file.text(step, "options", table);
    if (step == 1) file.parameters(folder, parameters);
  });
}

// Loads the first training images once more, before the first step.
void TensorBoard::write_first_images(Run& run) {
  const int size = *run.setup.options.image_size;
  const int count = std::min(size > 128 ? 8 : 16, *run.setup.options.local_batch) / 4 * 4;
  if (count > 0)
    write_image(run, 1, "Images/train",
                tiled(first_training_images(run.backend, run.setup, count), size));
}

void TensorBoard::write_image(Run& run, int64_t step, std::string_view tag, Image image) {
  if (image.pixels.empty()) return;
  write(run, [step, tag, image = std::move(image)](EventFile& file) {
    file.image(step, tag, encode_png(image.pixels.data(), image.height, image.width), image.height,
               image.width);
  });
}

void TensorBoard::after_test_epoch(Run& run, bool averaged, const EvaluationSums&) {
  if (!reads_predictions(run, averaged)) return;
  // A picture takes half a megabyte, so only evaluations 1, 2, 4, 8 ... and the last are logged.
  const bool last = run.progress.step >= run.end;
  if (!std::has_single_bit(++evaluations_) && !last) return;
  const int64_t step = run.progress.step;
  auto [mistakes, list] = mistakes_of(run, 16);
  std::string confusion = confusion_table(run.trainer.predictions(), run.setup.data.classes);
  write(run, [step, any = !mistakes.pixels.empty(), list = std::move(list),
              confusion = std::move(confusion)](EventFile& file) {
    if (any) file.text(step, "mistakes", list);
    file.text(step, "confusion", confusion);
  });
  write_image(run, step, "Images/mistakes", std::move(mistakes));
}

void TensorBoard::after_train_iter(Run& run, StepRecord& r) {
  if (!r.due) return;
  std::vector<Scalar> scalars{{"Loss/train", r.loss},
                              {"Accuracy/train", r.top1},
                              {"LR/train", r.lr},
                              {"GradNorm/train", r.grad_norm},
                              {"Throughput/train", r.images_per_second},
                              {"Seconds/data", r.data_seconds},
                              {"Seconds/step", r.step_seconds}};
  if (run.setup.graph.dtype() == DType::fp16)
    scalars.insert(scalars.end(), {{"LossScale/train", r.loss_scale},
                                   {"Skipped/train", static_cast<double>(r.skipped)}});
  write(run, [step = r.step, scalars](EventFile& file) { file.scalars(step, scalars); });
}

void TensorBoard::after_train_epoch(Run& run, EpochRecord& r) {
  std::vector<Scalar> scalars{
      {"Loss/train_epoch", r.train_loss},
      {"Seconds/epoch", r.seconds},
      {"Seconds/save", r.save_seconds},
      {"Memory/planned_MiB", static_cast<double>(r.peak_memory_bytes) / mebi},
      {"Memory/host_MiB", static_cast<double>(r.host_memory_bytes) / mebi},
      {"Memory/host_peak_MiB", static_cast<double>(r.host_peak_memory_bytes) / mebi}};
  const auto add = [&](std::string_view tag, const std::optional<double>& value) {
    if (value) scalars.push_back({tag, *value});
  };
  add("Accuracy/train_epoch", r.train_top1);
  add("Throughput/train_epoch", r.images_per_second);
  add("Loss/val", r.val_loss);
  add("Accuracy/val", r.val_top1);
  add("Accuracy/val_top5", r.val_top5);
  add("Loss/val_average", r.ema_loss);
  add("Accuracy/val_average", r.ema_top1);
  add("Seconds/val", r.eval_seconds);
  for (const auto& [tag, measured] : {std::pair{"Memory/device_MiB", r.device_memory_bytes},
                                      {"Memory/device_peak_MiB", r.device_peak_memory_bytes}})
    if (measured) scalars.push_back({tag, static_cast<double>(*measured) / mebi});
  write(run, [step = r.step, scalars](EventFile& file) { file.scalars(step, scalars); });
}

}  // namespace bv
#endif
