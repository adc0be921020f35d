// Every call of the CUDA runtime is checked.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#ifndef BAREVISION_GPU
#error "compile with -DBAREVISION_GPU=cuda_gpu or simt_gpu"
#endif

namespace bv::BAREVISION_GPU {

inline void check(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

}  // namespace bv::BAREVISION_GPU
