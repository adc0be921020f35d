#include "app/hooks/adaptive_precision.h"

namespace bv {
namespace {

DType dtype_of(const Run& run, const PrecisionState& state) {
  return state.sixteen_bits ? run.setup.graph.dtype() : DType::fp32;
}

}  // namespace

// A resumed run may begin with the previous epoch's evaluation, in that epoch's precision.
void AdaptivePrecision::before_train(Run& run) {
  if (!run.progress.precision) run.progress.precision.emplace();
  run.trainer.compute_in(dtype_of(run, *run.progress.precision));
}

void AdaptivePrecision::before_train_epoch(Run& run) {
  PrecisionState& state = *run.progress.precision;
  const int64_t epoch = run.progress.epoch + 1;
  if (state.epoch == epoch) return;  // resumed in the middle of the epoch
  const bool first = state.epoch == 0, before = state.sixteen_bits;
  state = decide(*run.setup.precision_policy, state, epoch,
                 run.schedule.at(run.progress.step, run.progress.epoch));
  run.trainer.compute_in(dtype_of(run, state));
  if (run.console && (first || state.sixteen_bits != before))
    run.console->line("precision: " + word_of(dtype_of(run, state)) + " from epoch " +
                      std::to_string(epoch) + " on: " + state.reason);
}

void AdaptivePrecision::after_train_epoch(Run& run, EpochRecord& record) {
  PrecisionState& state = *run.progress.precision;
  record.precision = word_of(dtype_of(run, state));
  record.precision_reason = state.reason;
  if (record.whole) state.add_loss(record.train_loss);
}

}  // namespace bv
