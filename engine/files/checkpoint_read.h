// The files of checkpoints (checkpoint.h), and what can be used in place of a damaged one.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/checkpoint_state.h"

namespace bv {

constexpr const char* weights_name = "weights.safetensors";
constexpr const char* ema_name = "ema.safetensors";
constexpr const char* optimizer_name = "state.safetensors";
constexpr const char* state_name = "state.json";

// "step-00000500", or "step-00000500-2" if a link still names an earlier save of that step.
struct StepFolder {
  int64_t step = 0;
  int64_t copy = 1;

  std::string name() const;
  auto operator<=>(const StepFolder&) const = default;
};
std::optional<StepFolder> step_folder(const std::string& name);
std::vector<StepFolder> steps_of(const std::string& run);  // newest first

// The names of a run folder's entries, for cleaning up: none if they can't be listed.
std::vector<std::string> entries(const std::string& run);
std::string link_target(const std::string& run, const char* link);  // empty: no such link

CheckpointState read_state(const std::string& folder);  // throws UserError

// Weights for another use than resuming their run. Errors name the newest intact checkpoint, as
// load_checkpoint's do, and how to use that.

// The folder that load_checkpoint reads: DIR/last, or the newest step folder if the link is
// missing. Throws UserError.
std::string last_checkpoint(const std::string& run);
// A checkpoint's file of weights: their average, if it has one.
std::string weights_in(const std::string& checkpoint);
// Whether `path` names a file of weights in a checkpoint's folder.
bool is_checkpoint_file(const std::string& path);
// Reads such a file, whose size and checksum must be those in state.json. Throws UserError.
TensorFile load_checkpoint_file(const std::string& path);

}  // namespace bv
