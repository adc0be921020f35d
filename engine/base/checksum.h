// CRC-32C (Castagnoli), the checksum of checkpoints: it finds every error of up to 32 bits in a row
// and all but one in four thousand million others. It guards against torn and rotten files, not
// against forgers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace bv {

// The checksum of a sequence of bytes, given the checksum of what stands before them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace bv
