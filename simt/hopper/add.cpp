#include "simt/hopper/add.h"

#include <bit>
#include <cstring>

namespace simt {
namespace {

template <class T, class Add>
void each(void* to, const void* from, size_t n, Add add) {
  for (size_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<char*>(to) + i * sizeof a, sizeof a);
    std::memcpy(&b, static_cast<const char*>(from) + i * sizeof b, sizeof b);
    a = static_cast<T>(add(a, b));
    std::memcpy(static_cast<char*>(to) + i * sizeof a, &a, sizeof a);
  }
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t to_bf16(float x) {  // to nearest even
  if (x != x) return 0x7FFF;
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

}  // namespace

bool can_add(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return true;
    default:
      return false;
  }
}

void add_elements(CUtensorMapDataType type, void* to, const void* from, size_t n) {
  const auto plus = [](auto a, auto b) { return a + b; };
  if (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32) return each<float>(to, from, n, plus);
  // One rounding: a sum of two is exact enough in float.
  if (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
    return each<_Float16>(to, from, n, [](_Float16 a, _Float16 b) { return float(a) + float(b); });
  if (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
    return each<uint16_t>(
        to, from, n, [](uint16_t a, uint16_t b) { return to_bf16(from_bf16(a) + from_bf16(b)); });
  if (type == CU_TENSOR_MAP_DATA_TYPE_UINT64) return each<uint64_t>(to, from, n, plus);
  each<uint32_t>(to, from, n, plus);
}

}  // namespace simt
