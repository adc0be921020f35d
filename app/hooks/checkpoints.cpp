#include "app/hooks/checkpoints.h"

namespace bv {
namespace {

// The largest fraction of a run's time spent waiting for the disk before evaluations.
constexpr double waiting_share = .02;

template <class F>
void in_saving(Run& run, F work) {
  const auto began = std::chrono::steady_clock::now();
  run.in_section("saving", work);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
  run.save_seconds += time.count();
}

}  // namespace

bool Checkpoints::due(const Run& run, bool epoch_ended) {
  const SaveEvery& every = run.setup.options.save_every;
  switch (every.unit) {
    case SaveEvery::steps:
      return run.progress.step % every.count == 0;
    case SaveEvery::seconds:
      return run.save_due;
    case SaveEvery::epochs:
      break;
  }
  return epoch_ended && run.progress.epoch % every.count == 0;
}

void Checkpoints::save(Run& run, bool best) {
  std::string line;
  in_saving(run, [&] { line = run.folder.save(run.progress, run.trainer, best); });
  if (!line.empty()) run.console->line(line);
  run.asks_to_save = run.save_due = false;
  saved_ = Clock::now();
}

void Checkpoints::before_train_iter(Run& run) {
  const SaveEvery& every = run.setup.options.save_every;
  if (every.unit == SaveEvery::seconds && run.rank == 0)
    run.asks_to_save =
        std::chrono::duration<double>(Clock::now() - saved_).count() >= double(every.count);
}

void Checkpoints::settle(Run& run, bool best) {
  in_saving(run, [&] { run.folder.settle(run.progress, run.trainer, best); });
}

void Checkpoints::finish(Run& run) {
  in_saving(run, [&] { run.folder.finish(); });
}

void Checkpoints::tell_written(Run& run) {
  for (const SaveRecord& written : run.folder.written()) run.at(&Hook::after_save, written);
}

// At the end of an epoch or of the run, before_test saves instead, or after_train_epoch, when the
// evaluation's outcome is known.
void Checkpoints::after_train_iter(Run& run, StepRecord&) {
  const bool ends = run.progress.batch == 0 || run.progress.step == run.end || run.stopped_by;
  if (!ends && due(run, false)) save(run, false);
  tell_written(run);
}

void Checkpoints::before_test(Run& run) {
  const bool ends = run.progress.step >= run.end || due(run, run.progress.batch == 0);
  if (ends && run.folder.saved_step() != run.progress.step) save(run, false);
  in_saving(run, [&] { wait_for_disk(run); });
}

// Waits before an evaluation, so that a kill during the evaluation doesn't lose the epoch; but only
// briefly: a slow disk continues to write during the evaluation.
void Checkpoints::wait_for_disk(Run& run) {
  run.folder.wait(waiting_share * (Clock::now() - waited_));
  waited_ = Clock::now();
}

void Checkpoints::after_train_epoch(Run& run, EpochRecord& record) {
  if (run.folder.saved_step() == run.progress.step)
    settle(run, record.best);
  else if (record.best || run.progress.step >= run.end || run.stopped_by || due(run, record.whole))
    save(run, record.best);
  if (run.progress.step >= run.end || run.stopped_by) finish(run);
  tell_written(run);
}

void Checkpoints::after_train(Run& run) {
  if (run.folder.saved_step() != run.progress.step) save(run, false);
  finish(run);
  tell_written(run);
}

}  // namespace bv
