// TFRecord framing, for data files and TensorBoard's event files: the payload's length in 8 bytes,
// their masked checksum in 4, the payload, and its masked checksum in 4, all little-endian.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bv {

inline constexpr size_t record_overhead = 16;  // bytes of a record besides its payload

// CRC-32C, rotated and offset: a plain CRC of data that contains CRCs is weak.
uint32_t masked_checksum(std::string_view bytes);

std::string framed_record(std::string_view payload);
// The payload's length from the first 12 bytes of a record; nothing if they are damaged.
inline constexpr size_t record_head = 12;
std::optional<uint64_t> payload_length(std::string_view head);
// The payload of the record at the beginning of `bytes`; nothing if it is cut off or damaged.
std::optional<std::string_view> first_record(std::string_view bytes);

}  // namespace bv
