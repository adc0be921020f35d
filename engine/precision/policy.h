// Adaptive mixed precision: which epochs compute in 16 bits, the others in fp32. Decided before each
// epoch, from what is known by then; a pure function of the policy and a state that checkpoints keep.
//   0: 16 bits from epoch `start` to `end`
//   1: the same, but not while training is restless: each `hold` epochs, fp32 if the learning rate
//      has risen since the last decision or the last epoch's loss by more than a tenth
//   2: decided in windows of `interval_hold` epochs that begin with every multiple of `interval`: 16
//      bits if the last epoch's loss fell by a thousandth to a half of itself. In between the last
//      decision stands; before the first window it is 16 bits.
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
  int kind;
  int64_t start, end, hold;
  int64_t interval, interval_hold;
};

struct PrecisionState {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  int64_t epoch = 0;  // that it was decided for; 0: none yet
  bool sixteen_bits = true;
  std::string reason;
  int64_t renewed = 0;                    // policy 1: the epoch that decided
  double lr = unknown;                    // in that epoch
  double losses[2] = {unknown, unknown};  // of the last epochs, the newest second

  void add_loss(double);  // of an epoch that has ended
};

// Nothing where --amp-policy is none. Throws UserError where --amp-... contradict each other or
// --precision, which is resolved; a recipe's policy gives way with a line in `notes`.
std::optional<PrecisionPolicy> precision_policy(Options&, std::vector<std::string>& notes);

// The state for `epoch`, which begins at this learning rate.
PrecisionState decide(const PrecisionPolicy&, const PrecisionState& before, int64_t epoch,
                      double lr);

}  // namespace bv
