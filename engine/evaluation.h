// Loss and accuracy over the validation images.
#pragma once
#include "engine/run.h"

namespace bv {

// Fills in the record, `best` too, by --best-by. Collective.
void evaluate(Run&, EpochRecord&);

}  // namespace bv
