// Weights in several files with an index, as huggingface's libraries save large models:
// model.safetensors.index.json and, beside it, model-00001-of-00003.safetensors and so on.
#pragma once
#include <functional>
#include <string>

#include "engine/files/safetensors.h"

namespace bv {

// Whether the text of a JSON file is such an index.
bool is_shard_index(const std::string& text);

// Reads all the files that the index names; each must have the tensors that the index gives it, and
// no others. `read` reads one. Throws UserError.
TensorFile read_shards(const std::string& text, const std::string& path,
                       const std::function<TensorFile(const std::string& path)>& read);

}  // namespace bv
