// The images that --val-fraction holds out for validation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bv {

// Chooses a class's validation images by hashes of their file names, so that adding or removing
// files changes the choice as little as possible; at least one image if the class has two.
std::vector<bool> held_out(const std::string& class_name, const std::vector<std::string>& names,
                           double fraction, uint64_t seed);

}  // namespace bv
