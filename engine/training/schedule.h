// Learning rate as a function of the update: linear warmup, then constant or cosine to zero
// (Loshchilov & Hutter 2017), by update or held through each epoch.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "engine/files/checkpoint_state.h"
#include "engine/options/options.h"

namespace bv {

struct Schedule {
  bool cosine;
  bool by_epoch;  // constant through an epoch: the value at its first update
  double lr;
  double total_updates;   // the horizon
  double warmup_updates;  // update s of them has lr * (s + 1) / warmup
  double updates_per_epoch;

  // `update` counts from 0, `epoch` is the one it belongs to.
  double at(int64_t update, int64_t epoch) const {
    // By epoch, everything is counted in epochs.
    const double unit = by_epoch ? updates_per_epoch : 1;
    const double now = static_cast<double>(by_epoch ? epoch : update);
    const double warmup = warmup_updates / unit, total = total_updates / unit;
    if (now < warmup) return lr * std::min(1.0, (now + 1) / warmup);
    if (!cosine || total <= warmup) return lr;
    const double progress = std::min(1.0, (now - warmup) / (total - warmup));
    return lr * .5 * (1 + std::cos(std::numbers::pi * progress));
  }
};

int64_t updates_of(double epochs, int64_t updates_per_epoch);
Schedule schedule_of(const Options&, double epochs, int64_t updates_per_epoch);
// Lines on a schedule that isn't what the user may expect: a warm-up that lasts as long as the run,
// a curve that other epochs have moved since the checkpoint (`at`, as far as the run is).
std::vector<std::string> schedule_notes(const Options&, int64_t updates_per_epoch,
                                        const Checkpoint& at);

}  // namespace bv
