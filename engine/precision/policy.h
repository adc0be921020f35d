// Adaptive mixed precision: some epochs compute in 16 bits, the others in fp32. Each epoch's
// precision is a pure function of the policy and a state that checkpoints keep.
//   0: 16 bits from epoch `start` to `end`
//   1: in these epochs, a decision every `hold` epochs: fp32 if the learning rate has risen since
//      the last decision, or the last epoch's loss by more than 10%; else 16 bits
//   2: decisions in windows, `interval_hold` epochs from every multiple of `interval` on: 16 bits
//      if the last epoch's loss fell by 0.1% to 50%, else fp32. Between windows the last decision
//      stands; before the first window, 16 bits
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/options/options.h"

namespace bv {

// Epochs count from 1; both ends are included.
struct PrecisionPolicy {
  AmpPolicy kind;
  int64_t start, end, hold;
  int64_t interval, interval_hold;
};

struct PrecisionState {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  int64_t epoch = 0;  // the epoch of this decision; 0: none yet
  bool sixteen_bits = true;
  std::string reason;
  int64_t renewed = 0;                    // policy 1: the epoch that decided
  double lr = unknown;                    // learning rate of that epoch
  double losses[2] = {unknown, unknown};  // of the last two epochs, the newer one second

  void add_loss(double);  // adds a completed epoch's loss
};

// Empty for --amp-policy none. Throws UserError if --amp-... options contradict each other or the
// resolved --precision; a recipe's policy is dropped instead, with a line in `notes`.
std::optional<PrecisionPolicy> precision_policy(Options&, std::vector<std::string>& notes);

// The state for `epoch`, whose first update has the learning rate `lr`.
PrecisionState decide(const PrecisionPolicy&, const PrecisionState& before, int64_t epoch,
                      double lr);

}  // namespace bv
