#include "engine/run/run_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "engine/files/event_file_names.h"
#include "engine/options/config.h"
#include "engine/setup/image_lists.h"

namespace bv {
namespace {

// Whether an image that was skipped has been removed since, as the user may.
bool any_is_gone(const DataSets& data, const BadImages& bad) {
  if (data.records) return false;
  const auto gone = [](const Dataset* part) {
    return [part](int64_t i) {
      std::error_code error;
      return !std::filesystem::exists(part->name(i), error);
    };
  };
  return std::ranges::any_of(bad.train, gone(data.train.get())) ||
         std::ranges::any_of(bad.val, gone(data.val.get()));
}

void remove_event_files(const std::string& folder) {
  std::error_code ignored;
  for (const std::filesystem::path& path : event_files(folder))
    std::filesystem::remove(path, ignored);
}

}  // namespace

RunFolder::RunFolder(const Setup& setup, Backend& backend, const Trainer& trainer,
                     Communicator* communicator, Background& background)
    : setup_(setup),
      backend_(backend),
      communicator_(communicator),
      first_(!communicator || communicator->rank() == 0),
      whole_(trainer.whole()),
      saved_step_(setup.checkpoint ? setup.checkpoint->step : -1),
      resumed_step_(saved_step_),
      writer_(backend, trainer, background, setup.options.out, setup.options.keep) {}

void RunFolder::discard() {
  if (!new_) return;
  abandon();  // the report page is written in the background
  const std::string folder = setup_.options.out;
  std::error_code ignored;
  for (const char* name : {"config.json", "metrics.jsonl", "report.html", "report.json",
                           train_list_name, val_list_name, skipped_list_name})
    std::filesystem::remove(folder + "/" + name, ignored);
  remove_event_files(folder);
}

std::string RunFolder::begin() {
  const Options& o = setup_.options;
  if (whole_) writer_.allocate();
  new_ = o.resume.empty();
  write_text_file(o.out + "/config.json", config_to_json(o));
  list_images();
  if (!setup_.checkpoint) remove_event_files(o.out);  // left by a run that was killed early
  contents_ = contents_fingerprint(setup_.data);
  const uint64_t before = setup_.checkpoint ? setup_.checkpoint->data_contents : 0;
  if (before == 0 || contents_ == before || any_is_gone(setup_.data, setup_.bad_images)) return "";
  return "warning: files in " + o.data +
         " have changed in size, time or contents since this run was saved; if the images are "
         "different, start a new run from --weights " +
         o.out + "/last/weights.safetensors";
}

void RunFolder::list_images() {
  write_image_lists(setup_.options.out, setup_.options.data, setup_.data, setup_.bad_images);
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

std::string RunFolder::save(const Checkpoint& progress, Trainer& trainer, bool best) {
  saved_step_ = progress.step;
  std::optional<Trainer::Saved> gathered;
  if (!whole_) gathered = trainer.saved();
  if (!first_) {
    if (whole_ && trainer.in_parts()) trainer.copy_to({});
    return "";
  }
  Checkpoint c = progress;
  describe(c, trainer);
  std::optional<int64_t> replaced;
  if (communicator_) communicator_->busy(Busy::saving);
  Snapshot& snapshot = writer_.next(replaced);
  if (communicator_) communicator_->busy(Busy::no);
  if (gathered)
    snapshot.take(std::move(*gathered));
  else
    snapshot.take();
  writer_.submit({.progress = std::move(c), .best = best});
  if (!replaced) return "";
  return "checkpoint of step " + std::to_string(*replaced) +
         " skipped: the disk was still busy with an earlier one";
}

// Fills in the fields of a checkpoint that the training loop doesn't set.
void RunFolder::describe(Checkpoint& c, const Trainer& trainer) const {
  c.model = setup_.model.name;
  c.data_fingerprint = setup_.data.fingerprint;
  c.data_contents = contents_;
  c.options = options_to_keep(setup_.options);
  c.weights.metadata = weights_metadata(setup_.info);
  c.update = trainer.state();
  if (setup_.graph.dtype() != DType::fp16) c.update.loss_scale = 0;
}

void RunFolder::settle(const Checkpoint& progress, Trainer& trainer, bool best) {
  bool settled = true;
  if (first_) {
    Checkpoint c = progress;
    describe(c, trainer);
    settled = writer_.settle(c, best);
  }
  // A copied run folder may lack the links, so that settle() is false on rank 0.
  if (communicator_ && progress.step == resumed_step_)
    settled = communicator_->all_reduce_scalar(settled ? 0 : 1) == 0;
  if (!settled) save(progress, trainer, best);
}

std::vector<SaveRecord> RunFolder::written() try {
  writer_.check();
  return writer_.written();
} catch (const NotFinite& e) {
  throw RunError(e.what() + advice_from(last_step()));
} catch (const RunError& e) {
  const std::string& folder = setup_.options.out;
  throw RunError(e.what() +
                 (has_checkpoint(folder) ? "" : "; nothing to resume: " + folder + " has none"));
}

int64_t RunFolder::last_step() {
  abandon();
  return writer_.last_step().value_or(resumed_step_);
}

void RunFolder::finish() {
  if (!first_) {
    backend_.synchronize(nullptr);  // rank 0's last save needs this process's part
    return;
  }
  if (communicator_) communicator_->busy(Busy::saving);
  writer_.finish();
  if (communicator_) communicator_->busy(Busy::no);
}

void RunFolder::abandon() { writer_.abandon(); }

std::string RunFolder::advice() {
  int64_t step = -1;
  if (first_) {
    if (communicator_) communicator_->busy(Busy::saving);
    step = last_step();
    if (communicator_) communicator_->busy(Busy::no);
    written();  // throws if a weight wasn't finite at an earlier step
  }
  if (communicator_)
    step = static_cast<int64_t>(communicator_->all_reduce_scalar(first_ ? double(step) : 0));
  return advice_from(step);
}

std::string RunFolder::advice_from(int64_t step) const {
  return ". Try a smaller --lr or --clip-grad 1" +
         (step < 0 ? "; nothing to resume: " + setup_.options.out + " has no checkpoint"
                   : "; " + setup_.options.out + "/last is the state after step " +
                         std::to_string(step));
}

}  // namespace bv
