#include "simt/hopper/box.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "simt/counters/recorder.h"
#include "simt/include/cuda_bf16.h"
#include "simt/include/cuda_fp16.h"
#include "simt/races/unwritten.h"
#include "simt/races/watching.h"

namespace simt {
namespace {

using Coordinates = std::array<int64_t, 5>;

// The part of a row that lies in the tensor: its elements begin ... end - 1.
struct Inside {
  unsigned char* address;
  unsigned begin, end;
};

Inside inside(const TensorMap& m, const Coordinates& c) {
  const unsigned n = m.row_bytes() / m.element_bytes;
  const int64_t size = static_cast<int64_t>(m.size[0]);
  const int64_t begin = std::clamp<int64_t>(-c[0], 0, n),
                end = std::clamp<int64_t>(size - c[0], 0, n);
  if (begin >= end) return {nullptr, 0, 0};
  int64_t at = (c[0] + begin) * m.element_bytes;
  for (unsigned i = 1; i < m.rank; ++i) {
    if (c[i] < 0 || c[i] >= static_cast<int64_t>(m.size[i])) return {nullptr, 0, 0};
    at += c[i] * static_cast<int64_t>(m.stride[i]);
  }
  return {m.address + at, static_cast<unsigned>(begin), static_cast<unsigned>(end)};
}

// Calls move(address in shared memory, offset in the row) for a row's pieces of 16 bytes.
template <class Move>
void each_piece(const TensorMap& m, uintptr_t shared, unsigned number, Move move) {
  const unsigned bytes = m.row_bytes();
  for (unsigned i = 0; i < bytes; i += 16)
    move(swizzled(shared + uintptr_t{number} * bytes + i, m.swizzle_bytes), i);
}

}  // namespace

template <class Row>
void Box::each_row(Row row) const {
  if (map.im2col) return each_pixel(row);
  const unsigned rows = map.rows();
  for (unsigned number = 0; number < rows; ++number) {
    Coordinates c{at[0]};
    unsigned rest = number;
    for (unsigned i = 1; i < map.rank; ++i) {
      const unsigned n = map.tiled_size(i);
      c[i] = int64_t{at[i]} + int64_t{rest % n} * map.step[i];
      rest /= n;
    }
    row(number, c);
  }
}

// Pixels advance along W, then along H, D and the images.
template <class Row>
void Box::each_pixel(Row row) const {
  const unsigned spatial = map.rank - 2;
  Coordinates c{};
  for (unsigned i = 0; i < map.rank; ++i) c[i] = at[i];
  for (unsigned number = 0; number < map.pixels; ++number) {
    Coordinates element = c;
    for (unsigned i = 0; i < spatial; ++i) element[i + 1] += offset[i];
    row(number, element);
    unsigned i = 1;
    for (; i <= spatial; ++i) {
      c[i] += map.step[i];
      if (c[i] < static_cast<int64_t>(map.size[i]) + map.upper[i - 1]) break;
      c[i] = map.lower[i - 1];
    }
    if (i > spatial) ++c[i];
  }
}

void Box::load(unsigned char* shared) const {
  each_row([&](unsigned number, const Coordinates& c) {
    unsigned char row[256 * 8]{};
    const Inside in = inside(map, c);
    const unsigned size = map.element_bytes;
    if (in.address) {
      const unsigned bytes = (in.end - in.begin) * size;
      std::memcpy(row + in.begin * size, in.address, bytes);
      if constexpr (counting) Recorder::here().tma(in.address, bytes, false);
    }
    each_piece(map, reinterpret_cast<uintptr_t>(shared), number, [&](uintptr_t to, unsigned i) {
      std::memcpy(reinterpret_cast<void*>(to), row + i, 16);
    });
  });
}

void Box::store(const unsigned char* bytes, uintptr_t shared, bool adds) const {
  // Blocks on several host threads may add to the same elements.
  static std::mutex one_adds;
  std::unique_lock lock(one_adds, std::defer_lock);
  if (adds) lock.lock();
  each_row([&](unsigned number, const Coordinates& c) {
    const Inside in = inside(map, c);
    if (!in.address) return;
    unsigned char row[256 * 8];
    each_piece(map, shared, number, [&](uintptr_t from, unsigned i) {
      std::memcpy(row + i, bytes + (from - shared), 16);
    });
    const unsigned size = map.element_bytes, n = (in.end - in.begin) * size;
    if (adds)
      add_elements(map.type, in.address, row + in.begin * size, in.end - in.begin);
    else
      std::memcpy(in.address, row + in.begin * size, n);
    if constexpr (watching) Unwritten::instance().wrote(in.address, n);
    if constexpr (counting) Recorder::here().tma(in.address, n, true);
  });
}

// ---- Additions ----------------------------------------------------------------------------------
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
  const auto rounded = [](auto a, auto b) { return __hadd(a, b); };
  if (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16) return each<__half>(to, from, n, rounded);
  if (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) return each<__nv_bfloat16>(to, from, n, rounded);
  if (type == CU_TENSOR_MAP_DATA_TYPE_UINT64) return each<uint64_t>(to, from, n, plus);
  each<uint32_t>(to, from, n, plus);
}

}  // namespace simt
