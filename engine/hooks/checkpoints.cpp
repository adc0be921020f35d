#include "engine/hooks/checkpoints.h"

#include "engine/options/option_values.h"

namespace bv {

bool Checkpoints::due(const Run& run, bool epoch_ended) {
  const SaveEvery every = *parse_save_every(run.setup.options.save_every);
  return every.steps ? run.progress.step % every.count == 0
                     : epoch_ended && run.progress.epoch % every.count == 0;
}

void Checkpoints::save(Run& run, bool best) {
  run.in_section("saving", [&] { run.folder.save(run.progress, run.trainer, best); });
  run.at(&Hook::after_save, {.step = run.progress.step, .best = best});
}

// With an epoch or the run, after_train_epoch saves, which knows the evaluation.
void Checkpoints::after_train_iter(Run& run, StepRecord&) {
  const bool ends = run.progress.batch == 0 || run.progress.step == run.end || run.stopped_by;
  if (!ends && due(run, false)) save(run, false);
}

void Checkpoints::after_train_epoch(Run& run, EpochRecord& record) {
  if (record.best || run.progress.step >= run.end || run.stopped_by || due(run, record.whole))
    save(run, record.best);
}

void Checkpoints::after_train(Run& run) {
  if (run.folder.saved_step() != run.progress.step) save(run, false);
}

}  // namespace bv
