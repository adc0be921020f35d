#include "engine/training/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "data/loader.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/options/augmentation.h"
#include "engine/processes/signals.h"
#include "engine/recording.h"
#include "engine/report/output.h"
#include "engine/report/report.h"
#include "engine/training/memory.h"
#include "engine/training/run_folder.h"
#include "engine/training/schedule.h"
#include "kernels/devices/machine.h"

namespace bv {
namespace {

// Limit on consecutive skipped updates in fp16: more than it takes to halve the largest scale to 1.
constexpr int max_skipped = 32;

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

LoaderOptions own_loader_options(const Setup& s, Backend& backend, Output& warnings, int replica,
                                 int cores) {
  LoaderOptions options = loader_options(s, replica, cores);
  options.warn = [&warnings](const std::string& line) {
    warnings.print(printable(line, line.npos) + "\n");
  };
  options.allocate = [&backend](size_t bytes) { return host_memory(backend, bytes); };
  return options;
}

class TrainingLoop {
 public:
  TrainingLoop(Setup setup, Backend& backend, Communicator* communicator, int cores);
  int run();

 private:
  // An update whose result has not been read yet.
  struct Pending {
    Clock::time_point start;
    int64_t epoch = 0, step = 0, images = 0;
    double lr = 0, waited = 0;
  };
  struct Window {  // since the last step line
    int64_t steps = 0;
    double images = 0, seconds = 0, data_seconds = 0;
  };

  bool plan_only() const;
  void note_free_memory();
  void set_starting_values();
  bool one_update();  // false: the run is to stop
  void finish_pending();
  void log_step(const Pending&, const UpdateResult&, double seconds);
  [[noreturn]] void fail_not_finite(int64_t step, const UpdateResult&);
  void end_epoch(bool whole);
  EvaluationSums evaluate_all(bool averaged);
  bool evaluate(EpochRecord&);  // true: the best so far
  bool save_due(bool epoch_ended) const;
  void save(bool best) {
    in_section("saving", [&] { folder_.save(progress_, trainer_, best); });
  }
  template <class F>
  void in_section(const char* name, F run) {
    timed(s_.options.profile ? &profile_ : nullptr, backend_, name, run);
  }
  void print_end();

  Setup s_;
  Output warnings_{STDERR_FILENO};
  Backend& backend_;
  Communicator* communicator_;
  int rank_;  // and the replica's number
  Trainer trainer_;
  Loader train_;
  std::unique_ptr<Loader> val_;
  RunFolder folder_;
  Schedule schedule_{};
  Profile profile_{s_.started};

  int64_t batches_, updates_per_epoch_;          // of an epoch
  int64_t horizon_, end_;                        // updates: of the schedule, of the run
  Checkpoint progress_;                          // without weights and optimizer state
  double epoch_seconds_ = 0, epoch_images_ = 0;  // training alone, in this process's lifetime
  Clock::time_point epoch_start_, last_finished_;
  std::optional<Pending> pending_;
  Window window_;
  int64_t skipped_ = 0;  // updates, in this process's lifetime
  int stopped_by_ = 0;
  bool starting_ = true;  // no update is done yet
};

TrainingLoop::TrainingLoop(Setup setup, Backend& backend, Communicator* communicator, int cores)
    : s_(std::move(setup)),
      backend_(backend),
      communicator_(communicator),
      rank_(communicator ? communicator->rank() : 0),
      trainer_(backend, communicator, s_.graph, s_.trainer),
      train_(*s_.data.train, own_loader_options(s_, backend, warnings_, rank_, cores), true),
      folder_(s_, communicator) {
  if (s_.data.val)
    val_ = std::make_unique<Loader>(
        *s_.data.val, own_loader_options(s_, backend, warnings_, rank_, cores), false);
  const Options& o = s_.options;
  batches_ = train_.batches_per_epoch();
  updates_per_epoch_ = (batches_ + o.accumulate - 1) / o.accumulate;
  horizon_ = updates_of(o.epochs, updates_per_epoch_);
  end_ = std::min(o.steps.value_or(horizon_), horizon_);
  schedule_ = schedule_of(o, o.epochs, updates_per_epoch_);
}

// Prints what --plan asks for, or refuses a plan that doesn't fit.
bool TrainingLoop::plan_only() const {
  // Processes share a machine's memory; each has a GPU's alone.
  const bool shared = s_.options.device == "cpu" || s_.options.oversubscribe;
  const size_t peak = trainer_.plan().peak(),
               limit = backend_.memory_limit() / static_cast<size_t>(shared ? s_.local_size : 1);
  if (s_.options.plan) {
    if (rank_ == 0) {
      std::cout << plan_head(s_, backend_.describe(), limit) << "\n";
      print_plan(std::cout, s_.graph, trainer_.layout(), trainer_.plan());
      std::cout << "one step: " << std::fixed << std::setprecision(1)
                << flops_of(record_step(s_.graph, s_.trainer)) / 1e9 << " GFLOP\n";
    }
    return true;
  }
  if (peak > limit)
    throw UserError("the plan needs " + format_bytes(peak) + " per process, but " +
                    format_bytes(limit) + " are available" + what_fits(s_, backend_, limit));
  return false;
}

// Memory that others use may be freed, or not.
void TrainingLoop::note_free_memory() {
  if (s_.options.device == "cuda") return;  // its limit is what is free
  const size_t wanted = trainer_.plan().peak() * static_cast<size_t>(s_.local_size),
               free = free_memory_in_bytes();
  if (wanted <= free) return;
  s_.notes.push_back("warning: " + format_bytes(wanted) + " are planned, but only " +
                     format_bytes(free) + " of memory are free" +
                     what_fits(s_, backend_, free / static_cast<size_t>(s_.local_size)));
}

void TrainingLoop::set_starting_values() {
  const Options& o = s_.options;
  const double fresh_scale = o.loss_scale > 0 ? o.loss_scale : o.loss_scale_init;
  if (!s_.checkpoint) trainer_.parameters().initialise(o.seed);
  trainer_.set_state(
      {.loss_scale = s_.graph.dtype() == DType::fp16 ? static_cast<float>(fresh_scale) : 1});
  if (!s_.weights.empty()) trainer_.parameters().set_weights(s_.weights);
  s_.weights.clear();
  if (!s_.checkpoint) return;
  folder_.restore(trainer_);
  progress_ = std::move(*s_.checkpoint);
  progress_.optimizer.tensors.clear();
  progress_.ema.tensors.clear();
  if (progress_.step > end_)
    throw UserError("the run in " + o.out + " has already done " + counted(progress_.step, "step") +
                    "; " + (end_ < horizon_ ? "--steps" : "--epochs") + " ends it after " +
                    std::to_string(end_));
}

int TrainingLoop::run() {
  if (plan_only()) return 0;
  if (rank_ == 0) note_free_memory();
  trainer_.allocate();
  set_starting_values();
  if (s_.options.profile) trainer_.profile(&profile_);
  for (std::string& line : schedule_notes(s_.options, updates_per_epoch_, progress_))
    s_.notes.push_back(std::move(line));
  if (progress_.step == end_ && progress_.loss_count == 0)
    s_.notes.push_back("nothing left to do: " + counted(end_, "step") + " done");
  // Nothing is written before all processes have looked at the run folder as it was.
  if (communicator_) communicator_->barrier();
  folder_.begin({.device = backend_.describe(),
                 .peak_bytes = trainer_.plan().peak(),
                 .gradient_buckets = trainer_.gradient_buckets(),
                 .steps_done = progress_.step,
                 .steps_end = end_});

  train_.start(progress_.epoch, progress_.batch);
  epoch_start_ = Clock::now();
  profile_.enter("other");
  if (progress_.batch == 0 && progress_.loss_count > 0) end_epoch(true);
  bool more = progress_.step < end_;
  while (more) {
    more = one_update();
    const bool epoch_ended = progress_.batch == 0;
    if (epoch_ended || !more)
      end_epoch(epoch_ended);
    else if (save_due(false))
      save(false);
  }
  if (folder_.saved_step() != progress_.step) save(false);
  print_end();
  return stopped_by_ ? 128 + stopped_by_ : 0;
}

// Starts the next update. Where the device runs ahead of the host, the previous update's result is
// read while this one's micro-steps are in flight.
bool TrainingLoop::one_update() {
  const Options& o = s_.options;
  Pending now{.start = Clock::now(), .epoch = progress_.epoch};
  bool last = false;
  for (int micro = 0; !last; ++micro) {
    const Batch* next = nullptr;
    in_section("waiting for data", [&] {
      trainer_.wait_for_upload();
      next = &train_.next();
    });
    const Batch& batch = *next;
    now.waited += batch.wait_seconds;
    now.images += *o.batch;
    last = micro + 1 == o.accumulate || progress_.batch + 1 == batches_;
    trainer_.micro_step(
        batch,
        {.epoch = progress_.epoch, .first = micro == 0, .last = last, .stop = stop_signal() != 0});
    if (++progress_.batch == batches_) progress_.batch = 0, ++progress_.epoch;
  }
  finish_pending();
  now.lr = schedule_.at(progress_.step, now.epoch);
  trainer_.start_update(now.lr, now.images);
  now.step = ++progress_.step;
  pending_ = now;
  const bool more = now.step < end_;
  if (!trainer_.runs_ahead() || progress_.batch == 0 || !more || save_due(false) || stopped_by_)
    finish_pending();
  return more && !stopped_by_;
}

void TrainingLoop::finish_pending() {
  if (!pending_) return;
  const Pending done = *std::exchange(pending_, {});
  const UpdateResult result = trainer_.finish_update();
  if (starting_ && communicator_) communicator_->busy(Busy::no);
  starting_ = false;
  const bool finite = std::isfinite(result.loss_sum) && std::isfinite(result.grad_norm);
  const bool may_skip =
      s_.graph.dtype() == DType::fp16 && result.skipped && result.skipped_in_a_row < max_skipped;
  if ((result.skipped || !finite) && !may_skip) fail_not_finite(done.step, result);
  if (result.skipped) ++skipped_;
  if (finite) {
    progress_.loss_sum += result.loss_sum;
    progress_.loss_count += result.count;
    progress_.top1_sum += result.top1;
  }
  const auto now = Clock::now();
  const double seconds = seconds_between(std::max(done.start, last_finished_), now);
  last_finished_ = now;
  epoch_seconds_ += seconds;
  epoch_images_ += static_cast<double>(done.images);
  if (folder_.log()) log_step(done, result, seconds);
  // Every process reads the same sum, so all stop after the same step.
  if (result.stop) stopped_by_ = stop_signal() ? stop_signal() : SIGTERM;
}

void TrainingLoop::log_step(const Pending& done, const UpdateResult& result, double seconds) {
  ++window_.steps;
  window_.images += result.count;
  window_.seconds += seconds;
  window_.data_seconds += done.waited;
  const auto steps = static_cast<double>(window_.steps);
  const bool due = done.step % s_.options.log_every == 0 || done.step == end_;
  folder_.log()->step({.epoch = done.epoch + 1,
                       .epochs = (horizon_ + updates_per_epoch_ - 1) / updates_per_epoch_,
                       .step = done.step,
                       .loss = result.loss_sum / result.count,
                       .mean_loss = progress_.loss_sum / std::max(progress_.loss_count, 1.0),
                       .lr = done.lr,
                       .grad_norm = result.grad_norm,
                       .top1 = result.top1 / result.count,
                       .images_per_second = window_.images / window_.seconds,
                       .data_seconds = window_.data_seconds / steps,
                       .step_seconds = window_.seconds / steps,
                       .loss_scale = result.loss_scale,
                       .skipped = skipped_},
                      due);
  if (due) window_ = {};
}

void TrainingLoop::fail_not_finite(int64_t step, const UpdateResult& result) {
  std::string line = "step " + std::to_string(step) + ": the " +
                     (std::isfinite(result.loss_sum) ? "gradient" : "loss") + " is not finite";
  if (result.skipped_in_a_row >= max_skipped)
    line += " in " + std::to_string(result.skipped_in_a_row) +
            " consecutive steps, down to loss scale " + format_number(result.loss_scale);
  const std::string name = trainer_.parameters().first_not_finite();
  if (!name.empty()) line += "; the first such gradient is that of " + name;
  throw RunError(line + folder_.advice());
}

EvaluationSums TrainingLoop::evaluate_all(bool averaged) {
  trainer_.begin_evaluation(averaged);
  val_->start(0, 0);
  for (int64_t k = 0; k < val_->batches_per_epoch(); ++k) {
    trainer_.wait_for_upload();
    trainer_.evaluate(val_->next());
  }
  return trainer_.end_evaluation();
}

bool TrainingLoop::evaluate(EpochRecord& record) {
  const EvaluationSums sums = evaluate_all(false);
  if (sums.count == 0) return false;
  double top1 = sums.top1 / sums.count;
  record.val_loss = sums.loss / sums.count;
  record.val_top1 = top1;
  if (s_.data.classes.size() > 5) record.val_top5 = sums.top5 / sums.count;
  if (s_.options.ema > 0) {  // the one that counts
    const EvaluationSums averaged = evaluate_all(true);
    record.ema_loss = averaged.loss / averaged.count;
    record.ema_top1 = top1 = averaged.top1 / averaged.count;
  }
  if (top1 <= progress_.best_top1) return false;
  progress_.best_top1 = top1;
  progress_.best_step = progress_.step;
  return true;
}

void TrainingLoop::end_epoch(bool whole) {
  // Stopped by the epoch's last step: its evaluation is the first thing that the resumed run does.
  if (whole && stopped_by_) return save(false);
  const int64_t epoch = progress_.epoch + (whole ? 0 : 1);  // counted from 1
  const bool ends = progress_.step >= end_;
  const int every = s_.options.eval_every;
  EpochRecord record{.epoch = epoch,
                     .step = progress_.step,
                     .train_loss = progress_.loss_sum / progress_.loss_count,
                     .lr = schedule_.at(progress_.step - 1, epoch - 1),
                     .peak_memory_bytes = static_cast<int64_t>(trainer_.plan().peak())};
  if (!std::isnan(progress_.top1_sum))
    record.train_top1 = progress_.top1_sum / progress_.loss_count;
  if (epoch_images_ > 0) record.images_per_second = epoch_images_ / std::max(epoch_seconds_, 1e-9);
  const bool due = ends || (every > 0 && epoch % every == 0);
  bool best = false;
  if (val_ && !stopped_by_ && due) in_section("evaluation", [&] { best = evaluate(record); });
  record.seconds = seconds_between(epoch_start_, Clock::now());
  if (folder_.log()) folder_.log()->epoch(record);
  if (whole) {
    progress_.loss_sum = progress_.loss_count = progress_.top1_sum = 0;
    epoch_seconds_ = epoch_images_ = 0;
    epoch_start_ = Clock::now();
  }
  if (best || ends || stopped_by_ || save_due(whole)) save(best);
}

bool TrainingLoop::save_due(bool epoch_ended) const {
  const SaveEvery every = *parse_save_every(s_.options.save_every);
  return every.steps ? progress_.step % every.count == 0
                     : epoch_ended && progress_.epoch % every.count == 0;
}

void TrainingLoop::print_end() {
  double skipped = static_cast<double>(train_.skipped() + (val_ ? val_->skipped() : 0));
  if (communicator_) skipped = communicator_->all_reduce_scalar(skipped);
  RunLog* log = folder_.log();
  if (!log) return;
  if (skipped > 0) log->line("bad images skipped: " + format_number(skipped));
  profile_.enter("end");
  if (s_.options.profile)
    for (const std::string& line : profile_lines(profile_.seconds())) log->line(line);
  for (const std::string& line : end_lines(s_.options, {.stopped = stopped_by_ != 0,
                                                       .capped = end_ < horizon_,
                                                       .has_best = progress_.best_top1 >= 0,
                                                       .step = progress_.step}))
    log->line(line);
}

}  // namespace

int train(Setup setup, Backend& backend, Communicator* communicator, int cores) {
  return TrainingLoop(std::move(setup), backend, communicator, cores).run();
}

}  // namespace bv
