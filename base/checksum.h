// CRC-32C (Castagnoli), the checksum of checkpoints: it detects every burst error of up to 32 bits
// and all but one in four billion others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace bv {

// The checksum of `bytes`, continuing from the checksum of the bytes before them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
// The same with the polynomial of PNG and zip.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace bv
