#include "engine/training/run_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file_io.h"
#include "engine/base/text.h"
#include "engine/options/config.h"
#include "engine/tensorboard/event_file_names.h"

namespace bv {
namespace {

// A finite gradient times a huge rate may overflow, which the loss would show a step too late.
void check_finite(const Checkpoint& c, const std::string& advice) {
  const auto finite = [](float x) { return std::isfinite(x); };
  for (const auto& [name, tensor] : c.weights.tensors)
    if (!std::ranges::all_of(tensor.data, finite))
      throw RunError("step " + std::to_string(c.step) + ": the update made " + name +
                     " not finite" + advice);
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

// A path a line.
std::string list_of(const Dataset& data) {
  std::string text;
  for (int64_t i = 0; i < data.size(); ++i)
    text += printable(data.name(i), std::string::npos) + "\n";
  return text;
}

void remove_event_files(const std::string& folder) {
  std::error_code ignored;
  for (const std::filesystem::path& path : event_files(folder))
    std::filesystem::remove(path, ignored);
}

}  // namespace

RunFolder::RunFolder(const Setup& setup, Communicator* communicator)
    : setup_(setup),
      communicator_(communicator),
      first_(!communicator || communicator->rank() == 0),
      saved_step_(setup.checkpoint ? setup.checkpoint->step : -1) {}

RunFolder::~RunFolder() {
  const std::filesystem::path folder = setup_.options.out;
  std::error_code ignored;
  if (!new_ || std::filesystem::exists(folder / "last", ignored)) return;
  std::filesystem::remove(folder / "config.json", ignored);
  std::filesystem::remove(folder / "metrics.jsonl", ignored);
  for (const char* page : {"report.html", "report.json"})
    std::filesystem::remove(folder / page, ignored);
  std::filesystem::remove(folder / val_list_name, ignored);
  remove_event_files(folder);
}

std::string RunFolder::begin() {
  const Options& o = setup_.options;
  new_ = o.resume.empty();
  write_text(o.out + "/config.json", config_to_json(o));
  if (setup_.data.kind == DataKind::photos && setup_.data.val)
    write_text(o.out + "/" + val_list_name, list_of(*setup_.data.val));
  if (!setup_.checkpoint) remove_event_files(o.out);  // of a run that was killed early
  contents_ = contents_fingerprint(setup_.data);
  const uint64_t before = setup_.checkpoint ? setup_.checkpoint->data_contents : 0;
  if (before == 0 || contents_ == before) return "";
  return "warning: files in " + o.data +
         " have other sizes, times or contents than when this run was saved; if the images are "
         "others, start a new run from --weights " +
         o.out + "/last/weights.safetensors";
}

void RunFolder::restore(Trainer& trainer) const {
  const Checkpoint& c = *setup_.checkpoint;
  trainer.parameters().set_moments(c.optimizer.tensors);
  trainer.parameters().set_ema(c.ema.tensors);
  const bool keeps_scale = setup_.graph.dtype() == DType::fp16 && c.update.loss_scale > 0 &&
                           setup_.options.loss_scale == 0;
  UpdateState state = c.update;
  if (!keeps_scale) state.loss_scale = trainer.state().loss_scale;
  trainer.set_state(state);
}

void RunFolder::save(const Checkpoint& progress, Trainer& trainer, bool best) {
  Trainer::Saved saved = trainer.saved();
  if (first_) {
    Checkpoint c = progress;
    c.model = setup_.model.name;
    c.data_fingerprint = setup_.data.fingerprint;
    c.data_contents = contents_;
    c.options = options_to_keep(setup_.options);
    c.weights = {.metadata = weights_metadata(setup_.info), .tensors = std::move(saved.weights)};
    check_finite(c, advice());
    c.ema = {.metadata = c.weights.metadata, .tensors = std::move(saved.ema)};
    c.optimizer.tensors = std::move(saved.moments);
    c.update = trainer.state();
    if (setup_.graph.dtype() != DType::fp16) c.update.loss_scale = 0;
    if (communicator_) communicator_->busy(Busy::saving);
    save_checkpoint(setup_.options.out, c, best, setup_.options.keep);
    if (communicator_) communicator_->busy(Busy::no);
  }
  saved_step_ = progress.step;
}

std::string RunFolder::advice() const {
  return ". Try a smaller --lr or --clip-grad 1" +
         (saved_step_ < 0 ? ""
                          : "; " + setup_.options.out + "/last is the state after step " +
                                std::to_string(saved_step_));
}

}  // namespace bv
