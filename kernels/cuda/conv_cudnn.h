// Convolution by cuDNN's legacy API, deprecated in version 8 and still present in 9, to compare
// with our own kernels (--conv cudnn). Algorithms are chosen by heuristic, once per shape.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>

#include "kernels/layers.h"

namespace bv::BAREVISION_GPU {

class ConvCudnn {
 public:
  enum class Direction { forward, backward_input, backward_weight };

  ConvCudnn();
  ~ConvCudnn();

  size_t workspace_bytes(Direction, DType, const ConvShape&);
  // Computes no moments: column_moments() does that.
  void run(const ConvForward&, cudaStream_t);
  // A non-null `add` means dinp +=; what it points to is not read.
  void run(const ConvBackwardInput&, cudaStream_t);
  // The weight gradient is in the operation's dtype: dweight [K, R, S, C / groups].
  void run(const ConvBackwardWeight&, void* dweight, bool add_to, void* workspace, cudaStream_t);

 private:
  struct Plan;
  Plan& plan(Direction, DType, const ConvShape&);

  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::map<std::array<int, 12>, Plan> plans_;  // by the arguments of plan()
};

}  // namespace bv::BAREVISION_GPU
