// Weights in torch.save's files (.pth, .pt, .bin): a zip archive of a pickle and the tensors' data;
// before PyTorch 1.6, pickles followed by the data. No code in a pickle is executed.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "engine/files/safetensors.h"

namespace bv {

// Reads a state dict, or that of a training checkpoint ("state_dict", "model"). Throws UserError.
TensorFile parse_torch_file(std::span<const std::byte> file, const std::string& path);

// Reads weights in this format or .safetensors, told apart by the first bytes. Throws UserError.
TensorFile read_tensor_file(const std::string& path);

}  // namespace bv
