// The tensors of a state dict that torch.save has pickled.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/files/names/weight_names.h"
#include "engine/files/safetensors.h"
#include "engine/files/torch/torch_pickle.h"

namespace bv {

// The byte range of a storage's elements in a file.
struct StoragePlace {
  uint64_t begin = 0, bytes = 0;
};
// Finds a storage by its key, called once per key; nullopt: not in the file. May throw FileError.
using FindStorage = std::function<std::optional<StoragePlace>(const std::string& key)>;

// Reads the tensors of the dictionary that the choice, or the model, tells from others. Every size
// is checked before use. Throws FileError.
TensorFile read_state_dict(const Pickle&, const ReadBytes&, const FindStorage&,
                           const TensorChoice&);

}  // namespace bv
