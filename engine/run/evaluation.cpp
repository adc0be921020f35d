#include "engine/run/evaluation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/stop_signals.h"

namespace bv {
namespace {

bool each_image(const Run& run, bool averaged) {
  return run.any_process(std::ranges::any_of(
      run.hooks, [&](const auto& hook) { return hook->reads_predictions(run, averaged); }));
}

// Null if this process was asked to stop while it waited. In a pipeline, either all stages compute
// a batch or none does, so a stage doesn't stop here.
const Batch* next_batch(Run& run) {
  if (run.setup.pipeline.shape.stages > 1) return &run.val->next();
  return run.val->next_unless([] { return stop_signal() != 0; });
}

// All processes stop before the same batch or one batch apart.
bool evaluate_batches(Run& run) {
  run.val->start(0, 0);
  for (int64_t batch = 0; batch < run.val->batches_per_epoch(); ++batch) {
    if (run.asked_to_stop()) return false;
    run.at(&Hook::before_test_iter, batch);
    run.trainer.wait_for_upload();
    if (const Batch* next = next_batch(run)) run.trainer.evaluate(*next);
    run.at(&Hook::after_test_iter, batch);
  }
  return !run.asked_to_stop();
}

// averaged: evaluates the weights' moving average. Returns nullopt if the run is stopped.
std::optional<EvaluationSums> evaluate_all(Run& run, bool averaged) {
  run.at(&Hook::before_test_epoch, averaged);
  run.trainer.begin_evaluation(averaged, each_image(run, averaged));
  if (!evaluate_batches(run)) {
    run.trainer.abandon_evaluation();
    return {};
  }
  const EvaluationSums sums = run.trainer.end_evaluation();
  run.at(&Hook::after_test_epoch, averaged, sums);
  return sums;
}

void fill(Run& run, EpochRecord& record) {
  const std::optional<EvaluationSums> own = evaluate_all(run, false);
  if (!own || own->count == 0) return;
  const EvaluationSums& sums = *own;
  double top1 = sums.top1 / sums.count, loss = sums.loss / sums.count;
  record.val_loss = loss;
  record.val_top1 = top1;
  if (run.setup.data.classes.size() > 5) record.val_top5 = sums.top5 / sums.count;
  if (run.setup.options.ema > 0) {  // then the average's result chooses best/
    const std::optional<EvaluationSums> averaged = evaluate_all(run, true);
    if (!averaged) return;
    record.ema_loss = loss = averaged->loss / averaged->count;
    record.ema_top1 = top1 = averaged->top1 / averaged->count;
  }
  Checkpoint& progress = run.progress;
  record.best = is_better({.top1 = top1, .loss = loss}, progress, run.setup.options.best_by);
  if (!record.best) return;
  progress.best_top1 = top1;
  progress.best_step = progress.step;
  progress.best_loss = std::isfinite(loss) ? loss : HUGE_VAL;
}

}  // namespace

bool is_better(const Outcome& now, const Checkpoint& best, BestBy by) {
  if (by == BestBy::loss)
    return std::isfinite(now.loss) && now.loss < best.best_loss.value_or(HUGE_VAL);
  // An older version's checkpoint lacks the loss, and its equal top-1 stays the best.
  return now.top1 > best.best_top1 ||
         (now.top1 == best.best_top1 && best.best_loss && now.loss < *best.best_loss);
}

bool evaluate(Run& run, EpochRecord& record) {
  run.at(&Hook::before_test);
  fill(run, record);
  if (run.stopped_by) return false;
  run.at(&Hook::after_test, record);
  return true;
}

}  // namespace bv
