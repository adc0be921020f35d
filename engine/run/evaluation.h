// Loss and accuracy over the validation images.
#pragma once
#include "engine/run/run.h"

namespace bv {

// An evaluation's result, as --best-by compares it.
struct Outcome {
  double top1, loss;
};
// Whether it is better than the best so far: a higher top-1, or the same with a lower loss; or just
// a lower loss. Equal outcomes keep the earlier one.
bool is_better(const Outcome&, const Checkpoint& best, BestBy);

// Fills in the record, including `best` (by --best-by). Collective. False: a process was asked to
// stop, and the evaluation must be repeated later.
bool evaluate(Run&, EpochRecord&);

}  // namespace bv
