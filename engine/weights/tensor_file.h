// Reads a file of weights in any format, told by its first bytes.
#pragma once
#include <string>

#include "engine/files/names/weight_names.h"
#include "engine/files/safetensors.h"

namespace bv {

// Throws UserError.
TensorFile read_tensor_file(const std::string& path, const TensorChoice& = {});

}  // namespace bv
