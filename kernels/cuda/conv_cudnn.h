// Convolution by cuDNN, of its API that version 8 deprecates and 9 still has: a reference and a
// rival for our own kernels (--conv cudnn). Algorithms are chosen by heuristic and kept.
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

  // Without moments, which column_moments takes; without `add`: dinp = or, with add_to, +=.
  size_t bytes(const ConvForward&);
  void run(const ConvForward&, void* workspace, cudaStream_t);
  size_t bytes(const ConvBackwardInput&);
  void run(const ConvBackwardInput&, bool add_to, void* workspace, cudaStream_t);
  // cuDNN gives the weight's gradient in the operation's dtype: to `dweight` [K, R, S, C / groups].
  size_t bytes(const ConvBackwardWeight&);
  void run(const ConvBackwardWeight&, void* dweight, bool add_to, void* workspace, cudaStream_t);

 private:
  struct Plan;
  enum class Direction { forward, backward_input, backward_weight };
  Plan& plan(Direction, DType, const ConvShape&);

  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::map<std::array<int, 12>, Plan> plans_;  // by all that plan() is given
};

}  // namespace bv::BAREVISION_GPU
