// The additions of TMA's reducing stores.
#pragma once
#include <cstddef>

#include "simt/hopper/tensor_map.h"

namespace simt {

// to[i] += from[i] for n elements, rounded to their type.
void add_elements(CUtensorMapDataType, void* to, const void* from, size_t n);
// Whether TMA adds such elements.
bool can_add(CUtensorMapDataType);

}  // namespace simt
