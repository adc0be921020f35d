// Describes to users, in one line, the CUDA version, architectures and libraries of this program.
#pragma once
#include <string>

namespace bv {

std::string cuda_build();  // "CUDA 13.0 for sm_80, cuBLASLt, cuDNN, NCCL", or "no CUDA"

}  // namespace bv

namespace bv::cuda_gpu {
std::string toolkit();  // "CUDA 13.0 for sm_80"
}
namespace bv::simt_gpu {
std::string toolkit();  // empty
}
