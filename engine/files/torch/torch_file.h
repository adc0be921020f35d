// Weights in torch.save's files (.pth, .pt, .bin): a zip archive of a pickle, which is read without
// running anything, and of the tensors' numbers.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "engine/files/safetensors.h"

namespace bv {

// A state dict, or the one in a training checkpoint ("state_dict", "model"). Throws UserError.
TensorFile parse_torch_file(std::span<const std::byte> file, const std::string& path);

// A file of weights in either format, which its first bytes decide. Throws UserError.
TensorFile read_tensor_file(const std::string& path);

}  // namespace bv
