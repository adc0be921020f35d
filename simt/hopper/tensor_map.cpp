#include "simt/hopper/tensor_map.h"

#include <algorithm>

namespace simt {
namespace {

constexpr uint64_t map_mark = 0x7E5A'0001;

std::string refuse(const std::string& what, uint64_t is, const std::string& must) {
  return what + " is " + std::to_string(is) + ", must be " + must;
}

bool is_float(CUtensorMapDataType type) {
  return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

std::string why_no_box(const TensorMap& m) {
  for (unsigned i = 0; i < m.rank; ++i)
    if (m.box[i] < 1 || m.box[i] > 256)
      return refuse("boxDim[" + std::to_string(i) + "]", m.box[i], "1 to 256");
  return {};
}

std::string why_no_pixels(const TensorMap& m) {
  if (m.rank < 3) return refuse("the rank", m.rank, "3 to 5");
  // The more dimensions, the fewer bits a map has for each corner.
  const int least = m.rank == 3 ? -32768 : m.rank == 4 ? -128 : -16, most = -least - 1;
  for (unsigned i = 0; i < m.rank - 2; ++i) {
    for (const int corner : {m.lower[i], m.upper[i]})
      if (corner < least || corner > most)
        return "a corner of the pixels' box is " + std::to_string(corner) + ", must be " +
               std::to_string(least) + " to " + std::to_string(most);
    if (static_cast<int64_t>(m.size[i + 1]) + m.upper[i] - m.lower[i] <= 0)
      return "the pixels' box is empty in dimension " + std::to_string(i + 1);
  }
  if (m.channels < 1 || m.channels > 256) return refuse("channelsPerPixel", m.channels, "1 to 256");
  if (m.pixels < 1 || m.pixels > 1024) return refuse("pixelsPerColumn", m.pixels, "1 to 1024");
  return {};
}

}  // namespace

unsigned bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
  }
  return 0;
}

unsigned TensorMap::rows() const {
  if (im2col) return pixels;
  unsigned n = 1;
  for (unsigned i = 1; i < rank; ++i) n *= tiled_size(i);
  return n;
}

std::string why_no_map(const TensorMap& m, CUtensorMapInterleave interleave,
                       CUtensorMapFloatOOBfill fill) {
  if (!m.element_bytes) return "no such data type";
  if (m.rank < 1 || m.rank > 5) return refuse("the rank", m.rank, "1 to 5");
  if (reinterpret_cast<uintptr_t>(m.address) % 16) return "the address is not a multiple of 16";
  if (!m.address) return "the address is null";
  for (unsigned i = 0; i < m.rank; ++i) {
    if (m.size[i] < 1 || m.size[i] > uint64_t{1} << 32)
      return refuse("globalDim[" + std::to_string(i) + "]", m.size[i], "1 to 2^32");
    if (i && (m.stride[i] % 16 || m.stride[i] >= uint64_t{1} << 40 || !m.stride[i]))
      return refuse("globalStrides[" + std::to_string(i - 1) + "]", m.stride[i],
                    "a multiple of 16 from 16 to below 2^40");
    if (m.step[i] < 1 || m.step[i] > 8)
      return refuse("elementStrides[" + std::to_string(i) + "]", m.step[i], "1 to 8");
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return "interleaved layouts are left out";
  if (fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && is_float(m.type))
    return "filling with NaN is left out";
  if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    return "only floating-point types can be filled with NaN";
  if (std::string why = m.im2col ? why_no_pixels(m) : why_no_box(m); !why.empty()) return why;
  if (m.row_bytes() % 16)
    return refuse("the box's innermost dimension in bytes", m.row_bytes(), "a multiple of 16");
  if (m.swizzle_bytes && m.row_bytes() > m.swizzle_bytes)
    return refuse("the box's innermost dimension in bytes", m.row_bytes(),
                  "at most " + std::to_string(m.swizzle_bytes) + " for this swizzle");
  return {};
}

CUtensorMap packed(const TensorMap& m) {
  CUtensorMap map{};
  uint64_t* const word = map.opaque;
  word[0] = reinterpret_cast<uintptr_t>(m.address);
  for (unsigned i = 0; i < m.rank; ++i) {
    word[1 + i] = m.size[i];
    if (i) word[5 + i] = m.stride[i];
    word[10] |= uint64_t{m.box[i]} << (9 * i);
    word[11] |= uint64_t{m.step[i]} << (4 * i);
  }
  word[11] |= uint64_t{m.rank} << 20 | uint64_t{static_cast<unsigned>(m.type)} << 24 |
              uint64_t{m.swizzle_bytes} << 28 | uint64_t{m.im2col} << 36;
  for (unsigned i = 0; i < 3; ++i) {
    const unsigned bits = m.rank <= 3 ? 16 : m.rank == 4 ? 8 : 5, all = (1u << bits) - 1;
    if (i * bits >= 16) break;
    word[12] |= uint64_t{static_cast<unsigned>(m.lower[i]) & all} << (i * bits);
    word[13] |= uint64_t{static_cast<unsigned>(m.upper[i]) & all} << (i * bits);
  }
  word[14] = m.channels | uint64_t{m.pixels} << 16;
  word[15] = map_mark;
  return map;
}

bool unpack(const CUtensorMap& map, TensorMap* out) {
  const uint64_t* const word = map.opaque;
  if (word[15] != map_mark) return false;
  TensorMap m;
  m.address = reinterpret_cast<unsigned char*>(word[0]);
  m.rank = word[11] >> 20 & 15;
  m.type = static_cast<CUtensorMapDataType>(word[11] >> 24 & 15);
  m.element_bytes = bytes_of(m.type);
  m.swizzle_bytes = word[11] >> 28 & 255;
  m.im2col = word[11] >> 36 & 1;
  for (unsigned i = 0; i < m.rank; ++i) {
    m.size[i] = word[1 + i];
    m.stride[i] = i ? word[5 + i] : m.element_bytes;
    m.box[i] = word[10] >> (9 * i) & 511;
    m.step[i] = i ? word[11] >> (4 * i) & 15 : 1;
  }
  for (unsigned i = 0; i < 3; ++i) {
    const unsigned bits = m.rank <= 3 ? 16 : m.rank == 4 ? 8 : 5;
    if (i * bits >= 16) break;
    const auto corner = [&](uint64_t w) {
      return static_cast<int>(static_cast<unsigned>(w >> (i * bits)) << (32 - bits)) >> (32 - bits);
    };
    m.lower[i] = corner(word[12]);
    m.upper[i] = corner(word[13]);
  }
  m.channels = word[14] & 0xFFFF;
  m.pixels = word[14] >> 16 & 0xFFFF;
  *out = m;
  return true;
}

}  // namespace simt
