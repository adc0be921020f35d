// The images that --val-fraction holds out for validation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bv {

// Of the images of a class, by their names in its folder: the same of them whatever others there
// are, as nearly as a fraction can be; at least one, if there are two.
std::vector<bool> held_out(const std::string& class_name, const std::vector<std::string>& names,
                           double fraction, uint64_t seed);

}  // namespace bv
