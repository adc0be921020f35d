// The errors returned by the runtime's calls.
#pragma once
#include <string>

#include "simt/include/cuda_runtime.h"

namespace simt::host {

// Thrown inside the runtime; the call returns the code.
struct Failure {
  cudaError_t code;
  std::string why;
};

// Called, if set, for the first error of a thread since its last cudaGetLastError().
inline void (*on_first_error)(cudaError_t) = nullptr;
// Whether this thread has had an error since then.
bool has_error();

// Makes `code` this thread's last error, described by `why` or, if that is empty, by CUDA's text.
cudaError_t report(cudaError_t code, const std::string& why);

// Sets the error of an operation that ran. From now on every call returns it.
void stick(cudaError_t code, const std::string& why);
cudaError_t sticky();
void forget_sticky();

}  // namespace simt::host
