#include "engine/train.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file_io.h"
#include "engine/base/text.h"
#include "engine/options/config.h"
#include "engine/processes/signals.h"
#include "engine/recording.h"
#include "engine/report/log.h"
#include "engine/report/report.h"
#include "engine/training/schedule.h"

namespace bv {
namespace {

// Updates that fp16 may skip on end: more than halving the largest loss scale down to 1 takes.
constexpr int max_skipped = 32;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LoaderOptions loader_options(const Setup& s, Backend& backend, int rank, int cores, bool train) {
  const Options& o = s.options;
  // Shared out among processes, and between training and evaluation.
  const size_t share = static_cast<size_t>(o.cache_mb) * 1024 * 1024 /
                       static_cast<size_t>(s.ranks) / (s.data.val ? 2 : 1);
  return {.kind = s.data.kind,
          .image_size = *o.image_size,
          .local_batch = *o.local_batch,
          .rank = rank,
          .ranks = s.ranks,
          .seed = o.seed,
          .augment = train && o.augment == "basic",
          .skip_bad_images = o.on_bad_image == "skip",
          .workers = o.workers > 0 ? o.workers : cores,
          .cache_bytes = share,
          .allocate = [&backend](size_t bytes) -> std::shared_ptr<void> {
            return {backend.allocate_host(bytes), [&backend](void* p) { backend.release_host(p); }};
          }};
}

class Training {
 public:
  Training(Setup setup, Backend& backend, Communicator* communicator, int cores)
      : s_(std::move(setup)),
        backend_(backend),
        communicator_(communicator),
        rank_(communicator ? communicator->rank() : 0),
        trainer_(backend, communicator, s_.graph, s_.trainer),
        train_(*s_.data.train, loader_options(s_, backend_, rank_, cores, true), true) {
    if (s_.data.val) {
      val_ = std::make_unique<Loader>(*s_.data.val,
                                      loader_options(s_, backend_, rank_, cores, false), false);
    }
    const Options& o = s_.options;
    batches_ = train_.batches_per_epoch();
    updates_per_epoch_ = (batches_ + o.accumulate - 1) / o.accumulate;
    horizon_ =
        std::max<int64_t>(1, std::llround(o.epochs * static_cast<double>(updates_per_epoch_)));
    end_ = o.steps ? std::min(*o.steps, horizon_) : horizon_;
    schedule_ = {.cosine = o.schedule == "cosine",
                 .by_epoch = o.schedule_by == "epoch",
                 .lr = o.lr,
                 .total_updates = static_cast<double>(horizon_),
                 .warmup_updates = o.warmup_steps > 0
                                       ? static_cast<double>(o.warmup_steps)
                                       : o.warmup_epochs * static_cast<double>(updates_per_epoch_),
                 .updates_per_epoch = static_cast<double>(updates_per_epoch_)};
  }

  int run();

 private:
  struct Window {  // since the last step line
    int64_t steps = 0;
    double images = 0, seconds = 0, data_seconds = 0;
  };

  void print_plan_and_limits();
  void start_values();
  // An update whose result has not been looked at.
  struct Pending {
    Clock::time_point start;
    int64_t epoch = 0, step = 0, images = 0;
    double lr = 0, waited = 0;
  };
  bool one_update();  // false: the run is to stop
  void settle();
  void log_step(const Pending&, const UpdateResult&, double seconds);
  void fail_not_finite(int64_t step, const UpdateResult&);
  std::string what_now() const;
  void check_finite(const std::map<std::string, HostTensor>& weights) const;
  void end_epoch(bool whole);
  EvaluationSums evaluate();
  void save(bool best);
  bool save_due(bool epoch_ended) const;
  void print_end();
  bool first() const { return rank_ == 0; }

  Setup s_;
  Backend& backend_;
  Communicator* communicator_;
  int rank_;
  Trainer trainer_;
  Loader train_;
  std::unique_ptr<Loader> val_;
  std::unique_ptr<RunLog> log_;  // rank 0 alone
  Schedule schedule_{};
  Profile profile_;

  int64_t batches_ = 0, updates_per_epoch_ = 0, horizon_ = 0, end_ = 0;
  int64_t step_ = 0, epoch_ = 0, batch_ = 0;     // done: updates; next: epoch and batch
  double epoch_loss_ = 0, epoch_count_ = 0;      // of the epoch so far
  double epoch_seconds_ = 0, epoch_images_ = 0;  // training alone, this process's life
  Clock::time_point epoch_start_;
  double best_top1_ = -1;
  int64_t best_step_ = 0, saved_step_ = -1;
  int stopped_by_ = 0;
  Window window_;
  std::optional<Pending> pending_;
  Clock::time_point settled_;  // the last time
  int64_t skipped_ = 0;        // updates, in this process's life
  double last_lr_ = 0;
};

// --plan, and a plan that doesn't fit.
void Training::print_plan_and_limits() {
  // The ranks share what the machine has; a GPU is one's own.
  const bool shared = s_.options.device == "cpu" || s_.options.oversubscribe;
  const size_t peak = trainer_.plan().peak(),
               limit = backend_.memory_limit() / static_cast<size_t>(shared ? s_.ranks : 1);
  if (s_.options.plan) {
    if (!first()) return;
    print_plan(std::cout, s_.graph, trainer_.layout(), trainer_.plan());
    char line[60];
    std::snprintf(line, sizeof line, "one step: %.1f GFLOP\n",
                  flops_of(record_step(s_.graph, s_.trainer)) / 1e9);
    std::cout << line;
    return;
  }
  if (peak <= limit) return;
  const int largest = largest_batch(s_, backend_, limit);
  throw UserError(
      "the plan needs " + format_bytes(peak) + " per process, there are " + format_bytes(limit) +
      (largest ? "; the largest batch that fits is --batch " + std::to_string(largest * s_.ranks)
               : "; no batch fits"));
}

void Training::start_values() {
  Parameters& parameters = trainer_.parameters();
  const Options& o = s_.options;
  const bool scaled = s_.graph.dtype() == DType::fp16;
  const double fresh_scale = o.loss_scale > 0 ? o.loss_scale : o.loss_scale_init;
  if (!s_.checkpoint) parameters.initialise(o.seed);
  trainer_.set_state({.loss_scale = scaled ? static_cast<float>(fresh_scale) : 1});
  if (!s_.weights.empty()) parameters.set_weights(s_.weights);
  if (!s_.checkpoint) return;
  const Checkpoint& c = *s_.checkpoint;
  parameters.set_moments(c.optimizer.tensors);
  const bool keeps_scale = scaled && c.loss_scale > 0 && o.loss_scale == 0;
  trainer_.set_state({.count = c.update_count,
                      .loss_scale = keeps_scale ? c.loss_scale : trainer_.state().loss_scale,
                      .good_steps = c.good_steps,
                      .skipped = c.skipped});
  step_ = saved_step_ = c.step;
  if (step_ > end_)
    throw UserError("the run in " + o.out + " has done " + std::to_string(step_) + " steps; " +
                    (end_ < horizon_ ? "--steps" : "--epochs") + " ends it after " +
                    std::to_string(end_) + " already");
  epoch_ = c.epoch;
  batch_ = c.batch;
  epoch_loss_ = c.loss_sum;
  epoch_count_ = c.loss_count;
  best_top1_ = c.best_top1;
  best_step_ = c.best_step;
  last_lr_ = schedule_.at(step_ - 1, batch_ == 0 ? epoch_ - 1 : epoch_);
}

int Training::run() {
  print_plan_and_limits();
  if (s_.options.plan) return 0;
  const Options& o = s_.options;
  trainer_.allocate();
  start_values();
  if (o.profile) trainer_.profile(&profile_);
  // Nothing is written before all have looked at the run folder as it was.
  if (communicator_) communicator_->barrier();
  if (first()) {
    std::error_code error;
    std::filesystem::create_directories(o.out, error);
    if (error) throw UserError("--out " + o.out + ": can't make this folder: " + error.message());
    OutputFile config(o.out + "/config.json");
    const std::string text = config_to_json(o);
    config.write(std::as_bytes(std::span(text.data(), text.size())));
    config.finish();
    log_ = std::make_unique<RunLog>(RunLog::Settings{.path = o.out + "/metrics.jsonl",
                                                     .resumed_step = s_.checkpoint ? step_ : -1,
                                                     .total_steps = end_,
                                                     .terminal = isatty(STDOUT_FILENO) != 0});
    for (const std::string& line : head_lines(s_, {.device = backend_.describe(),
                                                  .peak_bytes = trainer_.plan().peak(),
                                                  .steps_done = step_,
                                                  .steps_end = end_}))
      log_->line(line);
  }
  s_.weights.clear();
  s_.checkpoint.reset();

  train_.start(epoch_, batch_);
  epoch_start_ = Clock::now();
  if (batch_ == 0 && epoch_count_ > 0) end_epoch(true);
  bool going = step_ < end_;
  while (going) {
    going = one_update();
    const bool epoch_ended = batch_ == 0;
    if (epoch_ended || !going)
      end_epoch(epoch_ended);
    else if (save_due(false))
      save(false);
  }
  if (saved_step_ != step_) save(false);
  print_end();
  return stopped_by_ ? 128 + stopped_by_ : 0;
}

// Starts the next update. Where the device runs ahead of the host, the result of the one before is
// looked at while this one's micro-steps are under way.
bool Training::one_update() {
  const Options& o = s_.options;
  Pending now{.start = Clock::now(), .epoch = epoch_};
  for (int micro = 0; micro < o.accumulate; ++micro) {
    trainer_.wait_for_upload();
    const Batch& batch = train_.next();
    now.waited += batch.wait_seconds;
    now.images += *o.batch;
    const bool last = micro + 1 == o.accumulate || batch_ + 1 == batches_;
    trainer_.micro_step(
        batch, {.epoch = epoch_, .first = micro == 0, .last = last, .stop = stop_signal() != 0});
    if (++batch_ == batches_) batch_ = 0, ++epoch_;
    if (last) break;
  }
  settle();
  now.lr = last_lr_ = schedule_.at(step_, now.epoch);
  trainer_.start_update(now.lr, now.images);
  now.step = ++step_;
  pending_ = now;
  const bool due = batch_ == 0 || step_ >= end_ || save_due(false);
  if (!trainer_.runs_ahead() || due || stopped_by_) settle();
  return step_ < end_ && !stopped_by_;
}

// Takes in the result of the update that is under way, if there is one.
void Training::settle() {
  if (!pending_) return;
  const Pending done = *std::exchange(pending_, {});
  const UpdateResult result = trainer_.finish_update();
  const bool finite = std::isfinite(result.loss_sum) && std::isfinite(result.grad_norm);
  const bool may_skip = s_.graph.dtype() == DType::fp16;
  if ((result.skipped || !finite) &&
      (!may_skip || !result.skipped || result.skipped_in_a_row >= max_skipped))
    fail_not_finite(done.step, result);
  if (result.skipped) ++skipped_;
  if (finite) {
    epoch_loss_ += result.loss_sum;
    epoch_count_ += result.count;
  }
  const auto now = Clock::now();
  const double seconds =
      std::chrono::duration<double>(now - std::max(done.start, settled_)).count();
  settled_ = now;
  epoch_seconds_ += seconds;
  epoch_images_ += static_cast<double>(done.images);
  if (first()) log_step(done, result, seconds);
  // Every process reads the same sum, so all stop after the same step.
  if (result.stop) stopped_by_ = stop_signal() ? stop_signal() : SIGTERM;
}

void Training::log_step(const Pending& done, const UpdateResult& result, double seconds) {
  ++window_.steps;
  window_.images += result.count;
  window_.seconds += seconds;
  window_.data_seconds += done.waited;
  const bool due = done.step % s_.options.log_every == 0 || done.step == end_;
  const auto steps = static_cast<double>(window_.steps);
  const int64_t epoch = done.epoch + 1;  // counted from 1
  const double loss = result.loss_sum / result.count, rate = window_.images / window_.seconds;
  log_->progress({.epoch = epoch,
                  .epochs = (horizon_ + updates_per_epoch_ - 1) / updates_per_epoch_,
                  .step = done.step,
                  .loss = loss,
                  .lr = done.lr,
                  .images_per_second = rate});
  if (!due) return;
  log_->step({.epoch = epoch,
              .step = done.step,
              .loss = loss,
              .lr = done.lr,
              .grad_norm = result.grad_norm,
              .images_per_second = rate,
              .data_seconds = window_.data_seconds / steps,
              .step_seconds = window_.seconds / steps,
              .loss_scale = result.loss_scale,
              .skipped = skipped_});
  window_ = {};
}

void Training::fail_not_finite(int64_t step, const UpdateResult& result) {
  const std::string name = trainer_.parameters().first_not_finite(false);
  std::string what = !std::isfinite(result.loss_sum) ? "the loss" : "the gradient";
  const std::string often = result.skipped_in_a_row >= max_skipped
                                ? " in " + std::to_string(result.skipped_in_a_row) +
                                      " steps on end, down to loss scale " +
                                      format_number(result.loss_scale)
                                : "";
  throw RunError("step " + std::to_string(step) + ": " + what + " is not finite" + often +
                 (name.empty() ? "" : "; the first such gradient is that of " + name) + what_now());
}

std::string Training::what_now() const {
  const std::string last = s_.options.out + "/last is the state after step ";
  return ". Try a smaller --lr or --clip-grad 1" +
         (saved_step_ >= 0 ? "; " + last + std::to_string(saved_step_) : "");
}

// A finite gradient times a huge rate may overflow: then the loss would tell a step too late.
void Training::check_finite(const std::map<std::string, HostTensor>& weights) const {
  const auto finite = [](float x) { return std::isfinite(x); };
  for (const auto& [name, tensor] : weights)
    if (!std::all_of(tensor.data.begin(), tensor.data.end(), finite))
      throw RunError("step " + std::to_string(step_) + ": the update made " + name + " not finite" +
                     what_now());
}

EvaluationSums Training::evaluate() {
  trainer_.begin_evaluation();
  val_->start(0, 0);
  for (int64_t k = 0; k < val_->batches_per_epoch(); ++k) {
    trainer_.wait_for_upload();
    trainer_.evaluate(val_->next());
  }
  return trainer_.end_evaluation();
}

void Training::end_epoch(bool whole) {
  const Options& o = s_.options;
  // Asked to stop by the epoch's last step: its evaluation is the first thing that the run does when
  // it goes on.
  if (whole && stopped_by_) return save(false);
  const int64_t epoch = whole ? epoch_ : epoch_ + 1;  // counted from 1
  const bool ends = step_ >= end_;
  const bool due = o.eval_every > 0 && epoch % o.eval_every == 0;
  bool best = false;
  EpochRecord record{.epoch = epoch,
                     .step = step_,
                     .train_loss = epoch_loss_ / epoch_count_,
                     .lr = last_lr_,
                     .images_per_second = epoch_images_ / std::max(epoch_seconds_, 1e-9),
                     .peak_memory_bytes = static_cast<int64_t>(trainer_.plan().peak())};
  if (val_ && !stopped_by_ && (due || ends)) {
    const EvaluationSums sums = evaluate();
    if (sums.count > 0) {
      record.val_loss = sums.loss / sums.count;
      record.val_top1 = sums.top1 / sums.count;
      if (s_.data.classes.size() > 5) record.val_top5 = sums.top5 / sums.count;
      best = *record.val_top1 > best_top1_;
      if (best) best_top1_ = *record.val_top1, best_step_ = step_;
    }
  }
  record.seconds = seconds_since(epoch_start_);
  if (first()) log_->epoch(record);
  if (whole) {
    epoch_loss_ = epoch_count_ = 0;
    epoch_seconds_ = epoch_images_ = 0;
    epoch_start_ = Clock::now();
  }
  if (best || ends || stopped_by_ || save_due(whole)) save(best);
}

bool Training::save_due(bool epoch_ended) const {
  const SaveEvery every = *parse_save_every(s_.options.save_every);
  return every.steps ? step_ % every.count == 0 : epoch_ended && epoch_ % every.count == 0;
}

void Training::save(bool best) {
  if (!first()) {
    saved_step_ = step_;
    return;
  }
  const UpdateState state = trainer_.state();
  Checkpoint c;
  c.model = s_.model.name;
  c.weights = {.metadata = weights_metadata(s_.info),
               .tensors = trainer_.parameters().get_weights()};
  check_finite(c.weights.tensors);
  c.optimizer.tensors = trainer_.parameters().get_moments();
  c.step = step_;
  c.epoch = epoch_;
  c.batch = batch_;
  c.update_count = state.count;
  c.loss_scale = s_.graph.dtype() == DType::fp16 ? state.loss_scale : 0;
  c.good_steps = state.good_steps;
  c.skipped = state.skipped;
  c.best_top1 = best_top1_;
  c.best_step = best_step_;
  c.loss_sum = epoch_loss_;
  c.loss_count = epoch_count_;
  c.data_fingerprint = s_.data.fingerprint;
  if (communicator_) communicator_->busy(true);
  save_checkpoint(s_.options.out, c, best, s_.options.keep);
  if (communicator_) communicator_->busy(false);
  saved_step_ = step_;
}

void Training::print_end() {
  double skipped = static_cast<double>(train_.skipped() + (val_ ? val_->skipped() : 0));
  if (communicator_) skipped = communicator_->all_reduce_scalar(skipped);
  if (!first()) return;
  if (skipped > 0) log_->line("bad images skipped: " + format_number(skipped));
  if (s_.options.profile)
    for (const std::string& line : profile_lines(profile_)) log_->line(line);
  for (const std::string& line : end_lines(s_.options, {.stopped = stopped_by_ != 0,
                                                       .capped = end_ < horizon_,
                                                       .has_best = best_top1_ >= 0,
                                                       .step = step_}))
    log_->line(line);
}

}  // namespace

int train(Setup setup, Backend& backend, Communicator* communicator, int cores) {
  const std::string folder = setup.options.out;
  const bool fresh = !setup.checkpoint;
  try {
    return Training(std::move(setup), backend, communicator, cores).run();
  } catch (...) {
    // A run that never came to its first checkpoint leaves no folder that could not be used again.
    std::error_code ignored;
    if (fresh && (!communicator || communicator->rank() == 0) &&
        !std::filesystem::exists(folder + "/last", ignored)) {
      std::filesystem::remove(folder + "/config.json", ignored);
      std::filesystem::remove(folder + "/metrics.jsonl", ignored);
      std::filesystem::remove(folder, ignored);  // if it is empty now
    }
    throw;
  }
}

}  // namespace bv
