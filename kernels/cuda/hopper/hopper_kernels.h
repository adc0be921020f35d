// Kernels made for Hopper, sm_90a (--kernels hopper), in files NAME_sm90.cu next to NAME.cu.
// CudaKernels runs all other operations, and the sizes and dtypes that these don't support.
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
                  GeluLinearBackwardInput, LinearNormForward, NormLinearBackwardInput, ConvForward,
                  ConvBackwardInput, ConvBackwardInputSums, ConvBackwardWeight, AttentionForward,
                  AttentionBackward>;

// BothGradients needs a Hopper kernel for each of its two operations.
template <class Op>
constexpr bool has_hopper_kernel = HopperOps::has<Op>;
template <class Weight, class Input>
constexpr bool has_hopper_kernel<BothGradients<Weight, Input>> =
    HopperOps::has<Weight>&& HopperOps::has<Input>;

class HopperKernels {
 public:
  explicit HopperKernels(const DeviceProps& props) : props_(props) {}

  // Specialised for each operation of HopperOps. takes(), whether its kernel supports the sizes and
  // dtype, must not depend on pointers: memory planning and the log's counts call it before any are
  // set. Every tensor is aligned to 16 bytes, as TMA requires: the table refuses others.
  // workspace() and run() are called only if takes() returns true.
  template <class Op>
  bool takes(const Op&) const;
  template <class Op>
  size_t workspace(const Op&) const;
  template <class Op>
  void run(const Op&, cudaStream_t);

  // BothGradients in two launches, if Hopper kernels support both gradients and the weight gradient
  // is in parts: the input gradient's launch also adds up the parts. Both have their own workspace.
  template <class Weight, class Input>
  bool takes(const BothGradients<Weight, Input>& op) const {
    return takes(op.weight) && takes(op.input) && workspace(op.weight) > 0;
  }
  template <class Weight, class Input>
  size_t workspace(const BothGradients<Weight, Input>& op) const {
    return workspace_of_weight(op.weight) + workspace(op.input);
  }
  template <class Weight, class Input>
  void run(BothGradients<Weight, Input> op, cudaStream_t stream) {
    op.weight.workspace = op.workspace;
    op.input.workspace = static_cast<char*>(op.workspace) + workspace_of_weight(op.weight);
    run_beside(op.input, run_in_parts(op.weight, stream), stream);
  }

 private:
  // Computes a weight gradient. If the result has several parts, the caller must add them up.
  template <class Weight>
  ColumnSums run_in_parts(const Weight&, cudaStream_t);
  // Computes an input gradient and, in the same launch, adds up these parts.
  template <class Input>
  void run_beside(const Input&, const ColumnSums&, cudaStream_t);
  // Computes a weight gradient alone.
  template <class Weight>
  void run_and_add_up(const Weight& op, cudaStream_t stream) {
    if (const ColumnSums parts = run_in_parts(op, stream); parts.blocks > 1)
      finish_column_sums(parts, stream);
  }
  template <class Weight>
  size_t workspace_of_weight(const Weight& op) const {
    constexpr size_t alignment = gpu_alignments.workspace_alignment;
    return (workspace(op) + alignment - 1) / alignment * alignment;
  }

  DeviceProps props_;
};

}  // namespace bv::BAREVISION_GPU
