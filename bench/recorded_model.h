// The operations of a model's training step, given its command line.
#pragma once
#include <string>
#include <vector>

#include "kernels/table/recording.h"

namespace bv {

// record_step() of a model with the options of a command line: {"vit_tiny", "--batch", "16"}.
// Images are synthetic, in 1,000 classes. Throws UserError.
std::vector<RecordedOperation> record_model(std::vector<std::string> arguments,
                                            bool together = false);

}  // namespace bv
