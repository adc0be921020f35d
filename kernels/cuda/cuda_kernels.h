// The GPU's table of operations. Every operation's NAME.cu and every file in kernels/cuda/ is
// compiled twice, each time into its own namespace: cuda_gpu by nvcc, simt_gpu by g++ against the
// stand-in in simt/.
#pragma once
#include <cstdio>

#include "kernels/cuda/check.h"
#include "kernels/cuda/owner.h"
#include "kernels/kernels.h"

namespace bv::BAREVISION_GPU {

class ConvCudnn;
class Matmul;
void destroy_cudnn(ConvCudnn*);
void destroy_matmul(Matmul*);

// Kernels read 16 bytes at a time; on Hopper, cuBLASLt's kernels need workspaces aligned to 256.
inline constexpr DeviceLimits gpu_alignments{.alignment = 16, .workspace_alignment = 256};

// The device's properties that launches depend on, read once.
struct DeviceProps {
  int arch;  // 75, 80, 90 ...
  int sms;
  int blocks;        // of kernels with a block per SM: collectives beside them need SMs, too
  int shared_bytes;  // the most that a block may use
  // Counters with which a block detects that it is the last (last_block.cuh). They must be zero at
  // the start of each launch, so kernels that use them must not run concurrently.
  static constexpr int counters = 1 << 16;
  unsigned* arrived;  // [counters]
};

// out [C] and out2 [C2] (+)= sum over blocks of partial [blocks, C + C2]: the second stage of sums
// over columns (column_sums.cuh), or of a weight gradient that is computed in parts.
struct ColumnSums {
  float* out;
  float* out2 = nullptr;
  const float* partial;
  int64_t C, C2 = 0;
  int blocks;
  int accumulate;  // a bool as an int: kernel arguments must have no padding
};
void finish_column_sums(const ColumnSums&, cudaStream_t);

// Unless ok, throws std::invalid_argument "op: what", with `what` formatted as by printf.
template <class... Args>
void require(bool ok, const char* op, const char* format, Args... args) {
  if (ok) return;
  char what[200];
  if constexpr (sizeof...(args) == 0)
    std::snprintf(what, sizeof what, "%s", format);
  else
    std::snprintf(what, sizeof what, format, args...);
  refuse(op, what);
}

class CudaKernels final : public KernelRows<CudaKernels> {
 public:
  CudaKernels(cudaStream_t compute, bool cudnn);
  ~CudaKernels() override;
  const DeviceProps& props() const { return props_; }

  // Defined for each operation, as specialisations or instantiations, in its NAME.cu.
  template <class Op>
  void run(const Op&, cudaStream_t);
  template <class Op>
  size_t workspace(const Op&);

  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    run(op, stream ? reinterpret_cast<cudaStream_t>(stream) : compute_);
  }

 private:
  cudaStream_t compute_;                // the stream that null stands for
  Owner<unsigned*, cudaFree> arrived_;  // props_.arrived
  DeviceProps props_;
  Owner<Matmul*, destroy_matmul> matmul_;
  Owner<ConvCudnn*, destroy_cudnn> cudnn_;  // if set, computes the convolutions
};

// The same table, implemented by plain kernels (--kernels plain), which need no workspace.
class PlainKernels final : public KernelRows<PlainKernels> {
 public:
  explicit PlainKernels(cudaStream_t compute);

  // Defined for each operation in its NAME.cu, which starts with its plain kernels.
  template <class Op>
  void run(const Op&, cudaStream_t);
  template <class Op>
  size_t workspace(const Op&) {
    return 0;
  }

  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    run(op, stream ? reinterpret_cast<cudaStream_t>(stream) : compute_);
  }

 private:
  cudaStream_t compute_;
};

}  // namespace bv::BAREVISION_GPU
