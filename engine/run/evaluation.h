// Loss and accuracy over the validation images.
#pragma once
#include "engine/run/run.h"

namespace bv {

// Fills in the record, `best` too, by --best-by. Collective. False: a process was asked to stop,
// and the evaluation is to be made again.
bool evaluate(Run&, EpochRecord&);

}  // namespace bv
