#include "kernels/cuda/hopper/tensor_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/check.h"

namespace bv::BAREVISION_GPU {
namespace {

unsigned bytes_of(ElementType type) { return type == ElementType::f32 ? 4 : 2; }
unsigned span_of(Swizzle swizzle) {
  constexpr unsigned spans[]{0, 32, 64, 128};
  return spans[static_cast<int>(swizzle)];
}
CUtensorMapDataType driver_type(ElementType type) {
  return type == ElementType::f16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
         : type == ElementType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}
CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  return static_cast<CUtensorMapSwizzle>(swizzle);
}

bool has_tma() { return attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

// Looks up a driver function, since the driver's library is not linked. Null if it doesn't exist.
template <class Call>
Call* find_call(const char* name) {
  void* call = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &result), name);
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Call*>(call) : nullptr;
}
template <class Call>
Call* entry_point(const char* name) {
  if (Call* const call = find_call<Call>(name)) return call;
  throw std::runtime_error(std::string("the driver lacks ") + name + ": update it");
}

// Limits of both kinds of tensors.
template <class Tensor>
NoMap why_no_tensor(const Tensor& t, unsigned least_rank) {
  if (!has_tma()) return NoMap::no_tma;
  if (t.rank < least_rank || t.rank > 5) return NoMap::rank;
  if (!t.address || reinterpret_cast<uintptr_t>(t.address) % 16) return NoMap::address;
  for (unsigned i = 0; i < t.rank; ++i)
    if (t.size[i] < 1 || t.size[i] > uint64_t{1} << 32) return NoMap::size;
  for (unsigned i = 0; i + 1 < t.rank; ++i)
    if (!t.stride[i] || t.stride[i] % 16 || t.stride[i] >= uint64_t{1} << 40) return NoMap::stride;
  for (const unsigned step : t.step)
    if (step < 1 || step > 8) return NoMap::step;
  return NoMap::fits;
}

NoMap why_no_row(unsigned bytes, Swizzle swizzle) {
  if (bytes % 16) return NoMap::row_bytes;
  if (swizzle != Swizzle::none && bytes != span_of(swizzle)) return NoMap::swizzle_bytes;
  return NoMap::fits;
}

NoMap why_not(const TiledTensor& t) {
  if (const NoMap why = why_no_tensor(t, 1); why != NoMap::fits) return why;
  for (unsigned i = 0; i < t.rank; ++i)
    if (t.box[i] < 1 || t.box[i] > 256) return NoMap::box;
  return why_no_row(t.box[0] * bytes_of(t.type), t.swizzle);
}

NoMap why_not(const Im2colTensor& t) {
  if (const NoMap why = why_no_tensor(t, 3); why != NoMap::fits) return why;
  if (t.channels < 1 || t.channels > 256 || t.pixels < 1 || t.pixels > 1024) return NoMap::box;
  const int most = t.rank == 3 ? 32767 : t.rank == 4 ? 127 : 15;
  for (unsigned i = 0; i < t.rank - 2; ++i) {
    for (const int corner : {t.lower[i], t.upper[i]})
      if (corner > most || corner < -most - 1) return NoMap::corners;
    if (static_cast<int64_t>(t.size[i + 1]) + t.upper[i] - t.lower[i] <= 0) return NoMap::corners;
  }
  return why_no_row(t.channels * bytes_of(t.type), t.swizzle);
}

void check_driver(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + ": error " +
                             std::to_string(static_cast<int>(result)));
}

}  // namespace

const char* str(NoMap why) {
  switch (why) {
    case NoMap::fits:
      return "fits";
    case NoMap::no_tma:
      return "the GPU has no TMA";
    case NoMap::rank:
      return "its rank";
    case NoMap::address:
      return "its address is not a multiple of 16";
    case NoMap::size:
      return "a dimension's size";
    case NoMap::stride:
      return "a stride is not a multiple of 16 bytes";
    case NoMap::step:
      return "an element stride is outside 1 to 8";
    case NoMap::box:
      return "the box's size is out of range";
    case NoMap::row_bytes:
      return "the box's rows are not a multiple of 16 bytes";
    case NoMap::swizzle_bytes:
      return "the box's rows don't have the swizzle's width";
    case NoMap::corners:
      return "the corners of the pixels' box";
  }
  return "?";
}

bool driver_makes_maps() {
  return find_call<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled") != nullptr;
}

MadeMap make_map(const TiledTensor& t) {
  MadeMap made{.why = why_not(t)};
  if (made.why != NoMap::fits) return made;
  static auto* const encode =
      entry_point<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  check_driver(encode(&made.map, driver_type(t.type), t.rank, const_cast<void*>(t.address),
                      t.size.data(), t.stride.data(), t.box.data(), t.step.data(),
                      CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(t.swizzle),
                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               "cuTensorMapEncodeTiled");
  return made;
}

MadeMap make_map(const Im2colTensor& t) {
  MadeMap made{.why = why_not(t)};
  if (made.why != NoMap::fits) return made;
  std::array<unsigned, 5> step{1, 1, 1, 1, 1};
  std::copy_n(t.step.begin(), t.rank - 2, step.begin() + 1);
  static auto* const encode =
      entry_point<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  check_driver(
      encode(&made.map, driver_type(t.type), t.rank, const_cast<void*>(t.address), t.size.data(),
             t.stride.data(), t.lower.data(), t.upper.data(), t.channels, t.pixels, step.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(t.swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeIm2col");
  return made;
}

unsigned box_bytes(const TiledTensor& t) {
  unsigned bytes = t.box[0] * bytes_of(t.type);
  for (unsigned i = 1; i < t.rank; ++i) bytes *= (t.box[i] + t.step[i] - 1) / t.step[i];
  return bytes;
}
unsigned box_bytes(const Im2colTensor& t) { return t.channels * t.pixels * bytes_of(t.type); }

}  // namespace bv::BAREVISION_GPU
