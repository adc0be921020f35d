// Weights in torch.save's files (.pth, .pt, .bin): a zip archive of a pickle and the tensors' data;
// before PyTorch 1.6, pickles followed by the data. No code in a pickle is executed.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "engine/files/names/weight_names.h"
#include "engine/files/safetensors.h"

namespace bv {

// Reads a state dict, alone or in a training checkpoint. Throws UserError.
TensorFile parse_torch_file(std::span<const std::byte> file, const std::string& path,
                            const TensorChoice& = {});
// Whether a file that begins with these bytes, 16 or more, is torch.save's.
bool is_torch_file(std::string_view first);
TensorFile read_torch_file(const std::string& path, const TensorChoice& = {});

}  // namespace bv
