// Functions of the driver API: tensor maps.
#include <cuda.h>

#include <cstring>

#include "simt/hopper/tensor_map.h"
#include "simt/host/error.h"
#include "simt/include/cuda_runtime.h"

inline namespace simt_cuda {
namespace {

CUresult give(const simt::TensorMap& m, CUtensorMap* map, CUtensorMapInterleave interleave,
              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (!map || reinterpret_cast<uintptr_t>(map) % 64) return CUDA_ERROR_INVALID_VALUE;
  if (promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
    return CUDA_ERROR_INVALID_VALUE;
  if (!simt::why_no_map(m, interleave, fill).empty()) return CUDA_ERROR_INVALID_VALUE;
  *map = simt::packed(m);
  return CUDA_SUCCESS;
}

// False: a pointer is null, or the rank or swizzle is out of range.
bool describe(simt::TensorMap* m, CUtensorMapDataType type, unsigned rank, void* address,
              const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* steps,
              CUtensorMapSwizzle swizzle) {
  if (rank < 1 || rank > 5 || !sizes || (rank > 1 && !strides) || !steps) return false;
  constexpr unsigned spans[]{0, 32, 64, 128};
  if (swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return false;
  m->type = type;
  m->rank = rank;
  m->element_bytes = simt::bytes_of(type);
  m->swizzle_bytes = spans[swizzle];
  m->address = static_cast<unsigned char*>(address);
  for (unsigned i = 0; i < rank; ++i) {
    m->size[i] = sizes[i];
    m->stride[i] = i ? strides[i - 1] : m->element_bytes;
    m->step[i] = steps[i];
  }
  return true;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  simt::TensorMap m;
  if (!box || !describe(&m, type, rank, address, sizes, strides, element_strides, swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < rank; ++i) m.box[i] = box[i];
  return give(m, map, interleave, promotion, fill);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower_corner, const int* upper_corner,
                                 cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  simt::TensorMap m{.im2col = true};
  if (!lower_corner || !upper_corner || rank < 3 ||
      !describe(&m, type, rank, address, sizes, strides, element_strides, swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < rank - 2; ++i)
    m.lower[i] = lower_corner[i], m.upper[i] = upper_corner[i];
  m.channels = channels;
  m.pixels = pixels;
  return give(m, map, interleave, promotion, fill);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  if (!name || !call) return simt::host::report(cudaErrorInvalidValue, "a null pointer");
  *call = nullptr;
  if (!std::strcmp(name, "cuTensorMapEncodeTiled"))
    *call = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  if (!std::strcmp(name, "cuTensorMapEncodeIm2col"))
    *call = reinterpret_cast<void*>(&cuTensorMapEncodeIm2col);
  const auto found = !*call            ? cudaDriverEntryPointSymbolNotFound
                     : version < 12000 ? cudaDriverEntryPointVersionNotSufficent
                                       : cudaDriverEntryPointSuccess;
  if (found != cudaDriverEntryPointSuccess) *call = nullptr;
  if (result) *result = found;
  return cudaSuccess;
}

}  // namespace simt_cuda
