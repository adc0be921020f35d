// Loss and accuracy over the validation images.
#pragma once
#include "engine/run/run.h"

namespace bv {

// Fills in the record, including `best` (by --best-by). Collective. False: a process was asked to
// stop, and the evaluation must be repeated later.
bool evaluate(Run&, EpochRecord&);

}  // namespace bv
