// The operations of a real model's training step, found by running it on a device without memory.
#pragma once
#include <string>
#include <vector>

#include "engine/training/trainer.h"
#include "kernels/table/recording.h"

namespace bv {

// The operations of one micro-step of the whole model and of its update; then, with count 0, those
// that only evaluation runs.
std::vector<RecordedOperation> record_step(const Graph&, const TrainerOptions&);
// Of a model with the options of a command line: {"vit_tiny", "--batch", "16"}. Images are
// synthetic, in 1,000 classes. Throws UserError.
std::vector<RecordedOperation> record_model(std::vector<std::string> arguments);

double flops_of(const std::vector<RecordedOperation>&);

}  // namespace bv
