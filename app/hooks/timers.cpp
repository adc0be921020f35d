#include "app/hooks/timers.h"

#include <algorithm>
#include <utility>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

void Timers::after_train_iter(Run& run, StepRecord& record) {
  // An update begins while the previous one is in flight, so only the time after the previous
  // result is counted.
  const Clock::time_point now = Clock::now(), began = std::max(begun_.front(), last_read_);
  begun_.pop_front();
  last_read_ = now;
  for (Sums* sums : {&window_, &epoch_}) {
    sums->steps += 1;
    sums->images += record.images;
    sums->seconds += seconds_between(began, now);
    sums->data_seconds += record.data_seconds;
    if (run.trace) sums->bubble_seconds += run.trace->waited();
  }
  record.images_per_second = window_.images / window_.seconds;
  record.data_seconds = window_.data_seconds / window_.steps;
  record.step_seconds = window_.seconds / window_.steps;
  record.bubble_seconds = window_.bubble_seconds / window_.steps;
  if (record.due) window_ = {};
}

// Checkpoints that are saved in before_test don't count as evaluation.
void Timers::after_test(Run& run, EpochRecord& record) {
  record.eval_seconds =
      seconds_between(test_began_, Clock::now()) - (run.save_seconds - saved_before_test_);
}

void Timers::after_train_epoch(Run& run, EpochRecord& record) {
  if (epoch_.images > 0) record.images_per_second = epoch_.images / std::max(epoch_.seconds, 1e-9);
  const Clock::time_point now = Clock::now();
  record.seconds = seconds_between(epoch_began_, now);
  record.save_seconds = std::exchange(run.save_seconds, 0);
  epoch_began_ = now;
  epoch_ = {};
}

}  // namespace bv
