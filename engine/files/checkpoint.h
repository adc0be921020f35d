// Run folders: DIR/last and DIR/best are symbolic links, swapped by rename, to step folders
// (step-00000500), each complete and synced before a link shows it:
//   weights.safetensors    the model alone, timm's names, metadata without time, place or options
//   state.safetensors      optimizer state by parameter name: "m.NAME", "v.NAME"; absent if none
//   state.json             format version, progress, sizes and CRC-32C of the other files and of
//                          itself
// Nothing in it depends on the number of processes.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "engine/files/safetensors.h"

namespace bv {

struct Checkpoint {
  static constexpr int version = 1;
  std::string model;
  TensorFile weights;            // with its metadata
  TensorFile optimizer;          // m.*, v.*; may be empty
  int64_t step = 0;              // updates done
  int64_t epoch = 0, batch = 0;  // the next batch to train on
  int32_t update_count = 0;      // Adam's t
  float loss_scale = 0;          // 0: the run has none
  int32_t good_steps = 0, skipped = 0;
  double best_top1 = -1;  // of the best evaluation so far; -1: none yet
  int64_t best_step = 0;
  // sums of the unfinished epoch, so that its record is that of an uninterrupted run
  double loss_sum = 0, loss_count = 0;
  uint64_t data_fingerprint = 0;
};

// Writes DIR/step-N and points DIR/last (and DIR/best, if best) to it, then removes step folders
// beyond the newest `keep` that no link names. Atomic: whatever happens, last and best name
// complete folders. Throws RunError that says that the previous checkpoint is still there; the
// half-written folder is removed.
void save_checkpoint(const std::string& run_folder, const Checkpoint&, bool best, int keep);
// Reads DIR/last, checks version and checksums. Throws UserError (torn, foreign, newer).
Checkpoint load_checkpoint(const std::string& run_folder);

}  // namespace bv
