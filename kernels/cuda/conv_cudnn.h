// Convolution by cuDNN's legacy API, which version 8 deprecates and 9 still has: a reference and a
// rival for our own kernels (--conv cudnn). Algorithms are chosen by heuristic, once per shape.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>

#include "kernels/kernels.h"

namespace bv::BAREVISION_GPU {

class ConvCudnn {
 public:
  ConvCudnn();
  ~ConvCudnn();

  // Computes no moments (column_moments does) and ignores `add`: dinp = or, with add_to, +=.
  size_t bytes(const ConvForward&);
  void run(const ConvForward&, void* workspace, cudaStream_t);
  size_t bytes(const ConvBackwardInput&);
  void run(const ConvBackwardInput&, bool add_to, void* workspace, cudaStream_t);
  // The weight's gradient comes in the operation's dtype: dweight [K, R, S, C / groups].
  size_t bytes(const ConvBackwardWeight&);
  void run(const ConvBackwardWeight&, void* dweight, bool add_to, void* workspace, cudaStream_t);

 private:
  struct Plan;
  enum class Direction { forward, backward_input, backward_weight };
  Plan& plan(Direction, DType, const ConvShape&);

  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::map<std::array<int, 12>, Plan> plans_;  // by the arguments of plan()
};

}  // namespace bv::BAREVISION_GPU
