// Learning rate as a function of the update: linear warm-up, then a curve, which changes by update
// or by epoch. Closed forms without state, so resuming restores nothing. Names and formulas are
// timm's (StepLRScheduler, MultiStepLRScheduler, PolyLRScheduler); a cosine with a period is
// PyTorch's CosineAnnealingLR (Loshchilov & Hutter 2017).
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
  bool by_epoch = false;  // one rate per epoch: all lengths are counted in epochs
  double lr = 0, min_lr = 0;
  double total_updates = 0;   // the horizon
  double warmup_updates = 0;  // update (or epoch) s has lr * (s + 1) / warm-up
  double updates_per_epoch = 1;
  double period_epochs = 0;         // cosine: from lr down to min_lr; 0: the whole schedule
  double decay_epochs = 0;          // step: from one decay to the next
  std::vector<int> milestones;      // multistep: epochs from 1, increasing
  double decay_rate = 0.1;          // factor of step and multistep; exponent of poly
  std::optional<LrAfter> lr_after;  // wins over everything else

  // update: from 0; epoch: the one it belongs to, also from 0.
  double at(int64_t update, int64_t epoch) const;
};

int64_t updates_of(double epochs, int64_t updates_per_epoch);
Schedule schedule_of(const ScheduleOptions&, double epochs, int64_t updates_per_epoch);
// Throws UserError if options of the schedule contradict each other. A recipe's options that don't
// fit the schedule are dropped.
void check_schedule(Options&);
// "cosine (period 20 epochs, minimum 1e-06), then 1e-06 from epoch 601"
std::string schedule_text(const ScheduleOptions&);
// Warns of a schedule that may surprise the user: a warm-up longer than the run, or a curve that
// moved because --epochs changed since the checkpoint (`at`: the resumed progress).
std::vector<std::string> schedule_notes(const Options&, int64_t updates_per_epoch,
                                        const Checkpoint& at);

}  // namespace bv
