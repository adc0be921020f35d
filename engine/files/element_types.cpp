#include "engine/files/element_types.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace bv {
namespace {

static_assert(std::endian::native == std::endian::little, "the files' data is little-endian");

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

template <class T>
float to_float(T x) {
  return float(x);
}

// Reads in chunks, so that converting needs no second copy of a tensor.
template <class T, float (*convert)(T)>
void read_converted(const ReadBytes& read, uint64_t offset, std::span<float> out) {
  std::vector<T> chunk(std::min<size_t>(out.size(), 1 << 16));
  while (!out.empty()) {
    const auto part = std::span(chunk).first(std::min(chunk.size(), out.size()));
    read(offset, std::as_writable_bytes(part));
    for (size_t i = 0; i < part.size(); ++i) out[i] = convert(part[i]);
    out = out.subspan(part.size());
    offset += part.size_bytes();
  }
}

void read_f32(const ReadBytes& read, uint64_t offset, std::span<float> out) {
  read(offset, std::as_writable_bytes(out));
}

constexpr ElementType types[] = {{"F64", 8, read_converted<double, to_float>},
                                 {"F32", 4, read_f32},
                                 {"F16", 2, read_converted<_Float16, to_float>},
                                 {"BF16", 2, read_converted<uint16_t, from_bf16>},
                                 {"I64", 8, read_converted<int64_t, to_float>},
                                 {"I32", 4, read_converted<int32_t, to_float>},
                                 {"I16", 2, read_converted<int16_t, to_float>},
                                 {"I8", 1, read_converted<int8_t, to_float>},
                                 {"U8", 1, read_converted<uint8_t, to_float>},
                                 {"BOOL", 1, read_converted<uint8_t, to_float>}};

}  // namespace

bool holds_integers(const ElementType& type) {
  return type.name != "BF16" &&
         std::string_view("IUB").find(type.name[0]) != std::string_view::npos;
}

const ElementType* find_element_type(std::string_view name) {
  const auto found = std::ranges::find(types, name, &ElementType::name);
  return found == std::end(types) ? nullptr : found;
}

}  // namespace bv
