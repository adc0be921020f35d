#include "engine/run/training_loop.h"

#include <cmath>
#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/run/evaluation.h"
#include "engine/run/run.h"

namespace bv {
namespace {

// Limit on consecutive skipped updates in fp16: enough to halve the largest scale down to 1.
constexpr int max_skipped = 32;

class TrainingLoop {
 public:
  explicit TrainingLoop(Run& run) : run_(run), at_(run.progress) {}
  void train();

 private:
  // An update whose result has not been read yet.
  struct Pending {
    int64_t epoch = 0, step = 0, images = 0;
    double lr = 0, waited = 0;
  };

  bool over() const { return at_.step >= run_.end || run_.stopped_by != 0; }
  void one_update();
  // next_started: the following update has begun, so the gradients, weights and positions in memory
  // are that update's. Returns whether a checkpoint of that update is requested.
  bool finish_pending(bool next_started = false);
  [[noreturn]] void fail_not_finite(int64_t step, const UpdateResult&, bool next_started);
  void end_epoch(bool whole);

  Run& run_;
  Checkpoint& at_;
  std::optional<Pending> pending_;
  int64_t skipped_ = 0;   // updates skipped in this process's lifetime
  bool starting_ = true;  // no update is done yet
};

void TrainingLoop::train() {
  run_.at(&Hook::before_train);
  run_.train.start(at_.epoch, at_.batch);
  run_.profile.enter("other");
  // The run was stopped or killed at the end of an epoch, before its evaluation was done.
  if (!at_.settled && (at_.batch == 0 || over())) end_epoch(at_.batch == 0);
  if (!over()) run_.at(&Hook::before_train_epoch);
  while (!over()) {
    one_update();
    const bool epoch_ended = at_.batch == 0;
    if (epoch_ended || over()) end_epoch(epoch_ended);
    if (epoch_ended && !over()) run_.at(&Hook::before_train_epoch);
  }
  run_.backend.synchronize(nullptr);  // a hook may wait for a checkpoint's enqueued copy
  run_.at(&Hook::after_train);
}

// Starts the next update. If the device runs ahead of the host, the previous update's result is
// read while this one is in flight.
void TrainingLoop::one_update() {
  const Options& o = run_.setup.options;
  Trainer& trainer = run_.trainer;
  run_.at(&Hook::before_train_iter);
  Pending now{.epoch = at_.epoch};
  bool last = false;
  for (int micro = 0; !last; ++micro) {
    const Batch* next = nullptr;
    run_.in_section("waiting for data", [&] {
      trainer.wait_for_upload();
      next = &run_.train.next();
    });
    const Batch& batch = *next;
    now.waited += batch.wait_seconds;
    now.images += *o.batch;
    last = micro + 1 == o.accumulate || at_.batch + 1 == run_.batches;
    trainer.step().micro_step(batch, {.epoch = at_.epoch,
                                      .first = micro == 0,
                                      .last = last,
                                      .stop = stop_signal() != 0,
                                      .save = last && run_.asks_to_save});
    if (++at_.batch == run_.batches) at_.batch = 0, ++at_.epoch;
  }
  now.lr = run_.schedule.at(at_.step, now.epoch);
  trainer.step().start_update(now.lr, now.images);
  if (finish_pending(true)) run_.save_due = true;
  now.step = ++at_.step;
  pending_ = now;
  if (!trainer.step().runs_ahead() || at_.batch == 0 || over() || run_.reads_weights())
    finish_pending();
}

bool TrainingLoop::finish_pending(bool next_started) {
  if (!pending_) return false;
  const Pending done = *std::exchange(pending_, {});
  const UpdateResult result = run_.trainer.step().finish_update();
  if (starting_ && run_.communicator) run_.communicator->busy(Busy::no);
  starting_ = false;
  const bool finite = std::isfinite(result.loss_sum) && std::isfinite(result.grad_norm);
  const bool may_skip = run_.trainer.dtype() == DType::fp16 && result.skipped &&
                        result.skipped_in_a_row < max_skipped;
  if ((result.skipped || !finite) && !may_skip) fail_not_finite(done.step, result, next_started);
  if (result.skipped) ++skipped_;
  if (finite) {
    at_.loss_sum += result.loss_sum;
    at_.loss_count += result.count;
    at_.top1_sum += result.top1;
  }
  // Every process reads the same sum, so all stop after the same step.
  if (result.stop) run_.stopped_by = stop_signal() ? stop_signal() : SIGTERM;
  if (result.save && !next_started) run_.save_due = true;
  StepRecord record{.epoch = done.epoch + 1,
                    .epochs = (run_.horizon + run_.updates_per_epoch - 1) / run_.updates_per_epoch,
                    .step = done.step,
                    .loss = result.loss_sum / result.count,
                    .mean_loss = at_.loss_sum / std::max(at_.loss_count, 1.0),
                    .lr = done.lr,
                    .grad_norm = result.grad_norm,
                    .top1 = result.top1 / result.count,
                    .data_seconds = done.waited,
                    .loss_scale = result.loss_scale,
                    .skipped = skipped_,
                    .images = result.count,
                    .due = done.step % run_.setup.options.log_every == 0 || done.step == run_.end};
  run_.at(&Hook::after_train_iter, record);
  return result.save && next_started;
}

void TrainingLoop::fail_not_finite(int64_t step, const UpdateResult& result, bool next_started) {
  std::string line = "step " + std::to_string(step) + ": the " +
                     (std::isfinite(result.loss_sum) ? "gradient" : "loss") + " is not finite";
  if (result.skipped_in_a_row >= max_skipped)
    line += " in " + std::to_string(result.skipped_in_a_row) +
            " consecutive steps, down to loss scale " + format_number(result.loss_scale);
  const std::string name = run_.trainer.first_not_finite();
  const std::string when = next_started ? " of step " + std::to_string(step + 1) : "";
  if (!name.empty()) line += "; the first such gradient" + when + " is that of " + name;
  throw RunError(line + run_.folder.advice());
}

void TrainingLoop::end_epoch(bool whole) {
  // If the epoch's last step was stopped, the resumed run begins with the epoch's evaluation.
  at_.settled = !whole && run_.stopped_by;
  const int64_t epoch = at_.epoch + (whole ? 0 : 1);  // counted from 1
  const int every = run_.setup.options.eval_every;
  EpochRecord record{.epoch = epoch,
                     .step = at_.step,
                     .train_loss = at_.loss_sum / at_.loss_count,
                     .lr = run_.schedule.at(at_.step - 1, epoch - 1),
                     .whole = whole};
  if (!std::isnan(at_.top1_sum)) record.train_top1 = at_.top1_sum / at_.loss_count;
  const bool due = at_.step >= run_.end ? every > 0 || run_.setup.options.report
                                        : every > 0 && epoch % every == 0;
  bool complete = !(whole && run_.stopped_by);
  if (run_.val && !run_.stopped_by && due)
    run_.in_section("evaluation", [&] { complete = evaluate(run_, record); });
  run_.gather_skipped();
  if (!complete) return;
  at_.settled = true;
  if (whole) at_.loss_sum = at_.loss_count = at_.top1_sum = 0;
  run_.at(&Hook::after_train_epoch, record);
}

}  // namespace

int train(Setup setup, Backend& backend, Communicator* communicator, int cores,
          const MakeHooks& make_hooks) {
  Run run(std::move(setup), backend, communicator, cores);
  if (run.plan_only()) return 0;
  try {
    if (!run.begin()) return 128 + run.stopped_by;
    for (auto& hook : make_hooks(run)) run.attach(std::move(hook));
    TrainingLoop(run).train();
  } catch (const std::exception& e) {
    run.at(&Hook::after_error, error_line(e));
    const bool users = dynamic_cast<const UserError*>(&e) || dynamic_cast<const DataError*>(&e);
    if (users && run.progress.step == 0) run.folder.discard();
    throw;
  }
  return run.stopped_by ? 128 + run.stopped_by : run.incomplete ? 1 : 0;
}

}  // namespace bv
