// Run folders: DIR/last and DIR/best are symbolic links, swapped by rename, to step folders
// (step-00000500), each complete and synced before a link refers to it:
//   weights.safetensors    tensors under timm's or torchvision's names; metadata (WeightsInfo)
//   ema.safetensors        the same for the weights' moving average; absent without --ema
//   state.safetensors      optimizer state by parameter name: "m.NAME", "v.NAME"; absent if empty
//   state.json             format version, progress, sizes and CRC-32C of all files
// The files contain no times or paths, and their format doesn't depend on the number of processes.
#pragma once
#include <string>

#include "engine/files/checkpoint_state.h"

namespace bv {

// The tensors of a checkpoint's files; ema and optimizer may be empty.
struct CheckpointTensors {
  TensorViews weights, ema, optimizer;
};
CheckpointTensors tensors_of(const Checkpoint&);  // views of its own tensors

// Writes DIR/step-N, points DIR/last (and DIR/best, if best) to it, then removes step folders
// beyond the newest `keep` that no link refers to. last and best are complete at every moment; on
// failure a RunError says whether the previous checkpoint is intact. The tensors in `progress` are
// ignored, except for the weights' metadata.
void save_checkpoint(const std::string& run_folder, const Checkpoint& progress,
                     const CheckpointTensors&, bool best, int keep);
// Whether DIR/last is a step folder of this step.
bool is_last_checkpoint(const std::string& run_folder, int64_t step);
// For a checkpoint that was saved before its step's evaluation: writes the new progress to
// DIR/last, points DIR/best to it, if best, and removes old folders like save_checkpoint. Does
// nothing if DIR/last is of another step. Throws RunError.
void settle_checkpoint(const std::string& run_folder, const Checkpoint& progress, bool best,
                       int keep);
// Whether there is a checkpoint to load; a run that was killed early has none.
bool has_checkpoint(const std::string& run_folder);
// Whether a killed save left this entry of the run folder; the next save removes it.
bool is_unfinished_checkpoint(const std::string& name);
// Reads DIR/last and checks version and checksums. Throws UserError if a file is truncated, foreign
// or of a newer version. If the link is missing (the run was killed in its first save, or the
// folder was copied without links), reads the newest step folder.
Checkpoint load_checkpoint(const std::string& run_folder);

}  // namespace bv
