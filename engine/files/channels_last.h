// A convolution's weight is [K, C, R, S] in files and [K, R, S, C] in memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace bv {

// shape: as in files. from, to: K * C * R * S values, not overlapping.
void to_file_order(std::span<const int64_t> shape, const float* from, float* to);
void to_memory_order(std::span<const int64_t> shape, const float* from, float* to);

}  // namespace bv
