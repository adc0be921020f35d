// Kernels made for Hopper, sm_90a (--kernels hopper), in files NAME_sm90.cu beside NAME.cu. All
// other operations, and sizes and dtypes that they don't take, run as by CudaKernels.
#pragma once
#include "kernels/cuda/cuda_kernels.h"

namespace bv::BAREVISION_GPU {

template <class... Ops>
struct OperationList {
  template <class Op>
  static constexpr bool has = (std::is_same_v<Op, Ops> || ...);
};

// The operations that have such kernels. To add one, name it here and define its takes(),
// workspace() and run() in NAME_sm90.cu.
using HopperOps =
    OperationList<LinearForward, LinearBackwardInput, LinearBackwardWeight, LinearGeluForward,
                  GeluLinearBackwardInput, ConvForward, ConvBackwardInput, ConvBackwardInputSums,
                  ConvBackwardWeight, AttentionForward, AttentionBackward>;

class HopperKernels {
 public:
  explicit HopperKernels(const DeviceProps& props) : props_(props) {}

  // Each is a specialisation for an operation of HopperOps. takes(), whether its kernel computes
  // it, looks at sizes, dtype and props_ alone: memory is planned, and the log counts, before there
  // are pointers. Every tensor is at a multiple of 16 bytes, as TMA wants it: the table refuses
  // others. The other two are called only for what it takes.
  template <class Op>
  bool takes(const Op&) const;
  template <class Op>
  size_t workspace(const Op&);
  template <class Op>
  void run(const Op&, cudaStream_t);

 private:
  DeviceProps props_;
};

}  // namespace bv::BAREVISION_GPU
