#include "engine/files/channels_last.h"

#include <cstddef>

namespace bv {
namespace {

// [count, rows, columns] to [count, columns, rows]
void transpose(size_t count, size_t rows, size_t columns, const float* from, float* to) {
  for (size_t k = 0; k < count; ++k)
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c)
        to[(k * columns + c) * rows + r] = from[(k * rows + r) * columns + c];
}

}  // namespace

void to_file_order(std::span<const int64_t> s, const float* from, float* to) {
  transpose(size_t(s[0]), size_t(s[2] * s[3]), size_t(s[1]), from, to);
}

void to_memory_order(std::span<const int64_t> s, const float* from, float* to) {
  transpose(size_t(s[0]), size_t(s[1]), size_t(s[2] * s[3]), from, to);
}

}  // namespace bv
