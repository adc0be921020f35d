// CRC-32C (Castagnoli), the checksum of checkpoints. It detects every error burst of up to 32 bits
// and all but one in 2^32 of the other errors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace bv {

// The checksum of `bytes`, continuing from the checksum of the bytes before them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
// The same, with the polynomial that PNG and zip use.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace bv
