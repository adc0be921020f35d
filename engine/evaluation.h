// Loss and accuracy over the validation images.
#pragma once
#include "engine/run.h"

namespace bv {

// Fills in the record; its `best` where the accuracy is the run's highest. Collective.
void evaluate(Run&, EpochRecord&);

}  // namespace bv
