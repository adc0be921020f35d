// Table-driven CRCs, eight bytes per step ("slicing by 8", Kounavis & Berry 2005): table k holds
// the contribution of a byte that is followed by k more bytes.
#include "base/files/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace bv {
namespace {

static_assert(std::endian::native == std::endian::little);

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables(uint32_t polynomial) {  // with its bits reversed
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}

constexpr Tables castagnoli = make_tables(0x82f63b78), ethernet = make_tables(0xedb88320);

uint32_t crc(const Tables& tables, std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; n; --n, ++p) crc = (crc >> 8) ^ tables[0][(crc ^ uint32_t(*p)) & 255];
  return ~crc;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  return crc(castagnoli, bytes, before);
}
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  return crc(ethernet, bytes, before);
}

}  // namespace bv
