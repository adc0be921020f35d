#include "engine/evaluation.h"

#include <algorithm>
#include <cmath>

namespace bv {
namespace {

bool each_image(const Run& run, bool averaged) {
  const bool asked = std::ranges::any_of(
      run.hooks, [&](const auto& hook) { return hook->reads_predictions(run, averaged); });
  return run.communicator ? run.communicator->all_reduce_scalar(asked) > 0 : asked;
}

// averaged: of the weights' moving average instead of the weights.
EvaluationSums evaluate_all(Run& run, bool averaged) {
  run.at(&Hook::before_test_epoch, averaged);
  run.trainer.begin_evaluation(averaged, each_image(run, averaged));
  run.val->start(0, 0);
  for (int64_t batch = 0; batch < run.val->batches_per_epoch(); ++batch) {
    run.at(&Hook::before_test_iter, batch);
    run.trainer.wait_for_upload();
    run.trainer.evaluate(run.val->next());
    run.at(&Hook::after_test_iter, batch);
  }
  const EvaluationSums sums = run.trainer.end_evaluation();
  run.at(&Hook::after_test_epoch, averaged, sums);
  return sums;
}

void fill(Run& run, EpochRecord& record) {
  const EvaluationSums sums = evaluate_all(run, false);
  if (sums.count == 0) return;
  double top1 = sums.top1 / sums.count, loss = sums.loss / sums.count;
  record.val_loss = loss;
  record.val_top1 = top1;
  if (run.setup.data.classes.size() > 5) record.val_top5 = sums.top5 / sums.count;
  if (run.setup.options.ema > 0) {  // the one that counts
    const EvaluationSums averaged = evaluate_all(run, true);
    record.ema_loss = loss = averaged.loss / averaged.count;
    record.ema_top1 = top1 = averaged.top1 / averaged.count;
  }
  Checkpoint& progress = run.progress;
  const bool by_loss = run.setup.options.best_by == "loss";
  record.best = by_loss ? std::isfinite(loss) && loss < progress.best_loss.value_or(HUGE_VAL)
                        : top1 > progress.best_top1;
  if (!record.best) return;
  progress.best_top1 = top1;
  progress.best_step = progress.step;
  if (by_loss) progress.best_loss = loss;
}

}  // namespace

void evaluate(Run& run, EpochRecord& record) {
  run.at(&Hook::before_test);
  fill(run, record);
  run.at(&Hook::after_test, record);
}

}  // namespace bv
