// What is wrong with the images that a run is about to use.
#pragma once
#include "engine/setup.h"
#include "kernels/backend.h"

namespace bv {

// Called by rank 0, whose peers wait for it, before the first step. Throws DataError where an image
// can't be read, or with --on-bad-image skip adds a note.
void check_images(Setup&, Communicator*);

}  // namespace bv
