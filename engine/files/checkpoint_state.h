// state.json of a checkpoint: its format version, how far the run is, size and checksum of the
// files beside it, and a checksum of itself.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "engine/files/checkpoint.h"

namespace bv {

struct CheckpointState {
  Checkpoint progress;  // without weights and optimizer
  std::map<std::string, FileDigest> files;
};

// Of c, all but weights and optimizer.
std::string write_checkpoint_state(const Checkpoint& c,
                                   const std::map<std::string, FileDigest>& files);
// Throws UserError where the text is foreign, of another version or damaged; `path` is what the
// message calls it.
CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path);

}  // namespace bv
