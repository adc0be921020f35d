// The JSON header of a .safetensors file.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

enum class FileDType : uint8_t { f64, f32, f16, bf16, i64 };
constexpr uint64_t size_of(FileDType t) {
  return t == FileDType::f64 || t == FileDType::i64 ? 8 : t == FileDType::f32 ? 4 : 2;
}

struct TensorEntry {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
  uint64_t elements() const { return (end - begin) / size_of(dtype); }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in the order of their data, which has no gaps
};

// Throws UserError if the text is no such header or doesn't describe exactly `data_bytes` of data.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path);

}  // namespace bv
