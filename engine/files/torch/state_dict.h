// The tensors of a state dict that torch.save has pickled.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/files/safetensors.h"
#include "engine/files/torch/torch_pickle.h"

namespace bv {

// The place of a storage's numbers in a file.
struct StoragePlace {
  uint64_t begin = 0, bytes = 0;
};
// Finds a storage by its key, once; nothing: the file lacks it. May throw FileError.
using FindStorage = std::function<std::optional<StoragePlace>(const std::string& key)>;

// Reads the root, or its "state_dict" or "model". Every size is checked before use. Throws
// FileError.
TensorFile read_state_dict(const Pickle&, const ReadBytes&, const FindStorage&);

}  // namespace bv
