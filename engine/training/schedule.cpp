#include "engine/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bv {

double Schedule::at(int64_t update, int64_t epoch) const {
  // By epoch, everything is counted in epochs.
  const double unit = by_epoch ? updates_per_epoch : 1;
  const double now = static_cast<double>(by_epoch ? epoch : update);
  const double warmup = warmup_updates / unit, total = total_updates / unit;
  if (now < warmup) return lr * std::min(1.0, (now + 1) / warmup);
  if (!cosine) return lr;
  if (total <= warmup) return lr;
  const double progress = std::min(1.0, (now - warmup) / (total - warmup));
  return lr * .5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace bv
