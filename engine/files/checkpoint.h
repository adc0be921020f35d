// Run folders: DIR/last and DIR/best are symbolic links, swapped by rename, to step folders
// (step-00000500), each complete and synced before a link refers to it:
//   weights.safetensors    the model, timm's names, metadata without time, place or options
//   ema.safetensors        the same of the weights' moving average; absent without one
//   state.safetensors      optimizer state by parameter name: "m.NAME", "v.NAME"; absent if empty
//   state.json             format version, progress, sizes and CRC-32C of all files
// Nothing in them depends on the number of processes.
#pragma once
#include <string>

#include "engine/files/checkpoint_state.h"

namespace bv {

// The tensors of a checkpoint's files; ema and optimizer may be empty.
struct CheckpointTensors {
  TensorViews weights, ema, optimizer;
};
CheckpointTensors tensors_of(const Checkpoint&);  // of those in it

// Writes DIR/step-N, points DIR/last (and DIR/best, if best) to it, then removes step folders
// beyond the newest `keep` that no link refers to. Whatever happens, last and best are complete; on
// failure a RunError says whether the previous checkpoint is intact. Of `progress` the tensors are
// not read, but for the weights' metadata.
void save_checkpoint(const std::string& run_folder, const Checkpoint& progress,
                     const CheckpointTensors&, bool best, int keep);
// Whether DIR/last is a step folder of this step.
bool is_last_checkpoint(const std::string& run_folder, int64_t step);
// After the evaluation of a step that was saved before it: gives DIR/last this progress, points
// DIR/best to it, if best, and removes as save_checkpoint does. Leaves all as it is where DIR/last
// is another step's. Throws RunError.
void settle_checkpoint(const std::string& run_folder, const Checkpoint& progress, bool best,
                       int keep);
// Whether there is one to load; a run that was killed early has none.
bool has_checkpoint(const std::string& run_folder);
// An entry of the run folder that a killed save left; the next save removes it.
bool is_unfinished_checkpoint(const std::string& name);
// Reads DIR/last and checks version and checksums. Throws UserError (truncated, foreign, newer).
// Without that link, as after a kill in the first save or a copy without links: the newest step
// folder.
Checkpoint load_checkpoint(const std::string& run_folder);

}  // namespace bv
