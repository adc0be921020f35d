// Records the operations of a real model's training step by running it on a device without memory.
#pragma once
#include <memory>
#include <vector>

#include "engine/training/trainer.h"
#include "kernels/table/recording.h"

namespace bv {

// The operations of one micro-step of the whole model and of its update, then, with count 0, those
// that only evaluation runs. together: BothGradients is recorded as one operation, not two.
std::vector<RecordedOperation> record_step(const Graph&, const TrainerOptions&,
                                           bool together = false);
// The operations of a batch's evaluation. side: height and width of the images in pixels.
std::vector<RecordedOperation> record_forward(const Graph&, int batch, int side);
// A backend without memory: allocate() returns distinct addresses that are never dereferenced.
std::unique_ptr<Backend> make_recording_backend();

double flops_of(const std::vector<RecordedOperation>&);

}  // namespace bv
