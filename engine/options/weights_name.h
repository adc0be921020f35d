// Weights as --weights, eval and predict take them: names of public ones, and FILE:KEY.
#pragma once
#include <string>

namespace bv {

// A file, or a folder, and which of its tensors: a dictionary in it, or the names that begin so.
struct KeyedPath {
  std::string path, key;  // key: may be empty
};
// Splits "FILE:KEY" if FILE exists and no file has the whole name.
KeyedPath split_key(const std::string& given);

// Whether `given` is "timm/..." or "torchvision/...", and not the path of a file.
bool names_public_weights(const std::string& given);

}  // namespace bv
