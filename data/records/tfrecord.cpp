#include "data/records/tfrecord.h"

#include <bit>
#include <cstring>
#include <span>

#include "data/checksum.h"

namespace bv {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t length_bytes = 8, checksum_bytes = 4;

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

bool has_checksum(std::string_view bytes, const char* checksum) {
  uint32_t stored;
  std::memcpy(&stored, checksum, sizeof stored);
  return stored == masked_checksum(bytes);
}

}  // namespace

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8;
}

std::string framed_record(std::string_view payload) {
  const auto length = uint64_t{payload.size()};
  std::string record;
  record.reserve(payload.size() + record_overhead);
  for (const std::string_view part : {bytes_of(length), payload}) {
    record += part;
    record += bytes_of(masked_checksum(part));
  }
  return record;
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  if (bytes.size() < record_overhead) return {};
  const char* checksum = bytes.data() + length_bytes;
  if (!has_checksum(bytes.substr(0, length_bytes), checksum)) return {};
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - record_overhead) return {};
  const std::string_view payload = bytes.substr(length_bytes + checksum_bytes, length);
  if (!has_checksum(payload, payload.data() + length)) return {};
  return payload;
}

}  // namespace bv
