// CUDA's driver for g++: tensor maps, which the driver alone makes (simt/hopper/tensor_map.h).
// A program gets these calls by cudaGetDriverEntryPointByVersion.
#pragma once
#include <cstdint>

#include "simt/hopper/tensor_map.h"

inline namespace simt_cuda {

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill);
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* address,
                                 const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower_corner, const int* upper_corner,
                                 cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

}  // namespace simt_cuda
