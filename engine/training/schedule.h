// Learning rate as a function of the update: linear warm-up, then a curve, by update or constant in
// each epoch. Closed forms without state, so a resumed run needs none. Names and numbers are timm's
// (StepLRScheduler, MultiStepLRScheduler, PolyLRScheduler), a cosine with a period is PyTorch's
// CosineAnnealingLR (Loshchilov & Hutter 2017).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/checkpoint_state.h"
#include "engine/options/options.h"

namespace bv {

struct Schedule {
  Curve curve = Curve::constant;
  bool by_epoch = false;  // constant through an epoch: the value at its first update
  double lr = 0, min_lr = 0;
  double total_updates = 0;   // the horizon
  double warmup_updates = 0;  // update s of them has lr * (s + 1) / warmup
  double updates_per_epoch = 1;
  double period_epochs = 0;         // of cosine, from lr down to min_lr; 0: to the horizon
  double decay_epochs = 0;          // of step
  std::vector<int> milestones;      // of multistep: epochs from 1, rising
  double decay_rate = 0.1;          // of step and multistep; of poly the exponent
  std::optional<LrAfter> lr_after;  // wins over all else

  // `update` counts from 0, `epoch` is the one it belongs to, from 0, too.
  double at(int64_t update, int64_t epoch) const;
};

int64_t updates_of(double epochs, int64_t updates_per_epoch);
Schedule schedule_of(const ScheduleOptions&, double epochs, int64_t updates_per_epoch);
// Throws UserError where options of the schedule contradict each other. A recipe's options that
// don't go with the schedule are dropped.
void check_schedule(Options&);
// "cosine (period 20 epochs, minimum 1e-06), then 1e-06 from epoch 601"
std::string schedule_text(const ScheduleOptions&);
// Lines on a schedule that isn't what the user may expect: a warm-up that lasts as long as the run,
// a curve that other epochs have moved since the checkpoint (`at`, as far as the run is).
std::vector<std::string> schedule_notes(const Options&, int64_t updates_per_epoch,
                                        const Checkpoint& at);

}  // namespace bv
