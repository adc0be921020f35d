#include "data/records/tfrecord.h"

#include <bit>
#include <cstring>
#include <span>

#include "base/files/checksum.h"

namespace bv {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t length_bytes = 8;

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

std::optional<uint64_t> payload_length(std::string_view head) {
  if (head.size() < record_head ||
      !has_checksum(head.substr(0, length_bytes), head.data() + length_bytes))
    return {};
  uint64_t length;
  std::memcpy(&length, head.data(), sizeof length);
  return length;
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  const std::optional<uint64_t> length = payload_length(bytes);
  if (!length || bytes.size() < record_overhead || *length > bytes.size() - record_overhead)
    return {};
  const std::string_view payload = bytes.substr(record_head, *length);
  if (!has_checksum(payload, payload.data() + *length)) return {};
  return payload;
}

}  // namespace bv
