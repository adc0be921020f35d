// Element types in weights files, and their conversion to fp32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace bv {

// Fills `out` with the file's bytes from `offset` on, or throws.
using ReadBytes = std::function<void(uint64_t offset, std::span<std::byte> out)>;

struct ElementType {
  std::string_view name;  // as .safetensors files call it: "F32"
  uint64_t bytes;         // per element
  void (*read)(const ReadBytes&, uint64_t offset, std::span<float> out);
};
bool holds_integers(const ElementType&);                      // or BOOL
const ElementType* find_element_type(std::string_view name);  // null if there is none

}  // namespace bv
