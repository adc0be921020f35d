// The GPU's table of operations. Every kernels/NAME.cu and kernels/cuda/NAME.cpp is compiled twice:
// with -DBAREVISION_GPU=cuda_gpu by nvcc against the CUDA toolkit, and with simt_gpu by g++ against
// the stand-in in kernels/simt, into a namespace each.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/cuda/check.h"
#include "kernels/kernels.h"

namespace bv::BAREVISION_GPU {

class ConvCudnn;
class Matmul;

// What launches depend on, read once.
struct DeviceProps {
  int arch;  // 75, 80, 90 ...
  int sms;
  int shared_bytes;  // that a block may take
};

// Unless ok: std::invalid_argument "op: what", of printf's words.
template <class... Args>
void require(bool ok, const char* op, const char* format, Args... args) {
  if (ok) return;
  char what[200];
  if constexpr (sizeof...(args) == 0)
    std::snprintf(what, sizeof what, "%s", format);
  else
    std::snprintf(what, sizeof what, format, args...);
  throw std::invalid_argument(std::string(op) + ": " + what);
}

// A pointer that is there and as aligned as kernels' accesses are wide.
inline void require_pointer(const void* p, const char* op, const char* name) {
  require(p != nullptr, op, "%s is null", name);
  require(reinterpret_cast<uintptr_t>(p) % 16 == 0, op, "%s is not at a multiple of 16 bytes",
          name);
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(cudaStream_t compute, bool cudnn);
  ~CudaKernels() override;
  using Kernels::workspace_bytes;

  // input.cu
  void run(const InputPatches&, Stream) override;

  // linear.cu
  void run(const LinearForward&, Stream) override;
  void run(const LinearBackwardInput&, Stream) override;
  void run(const LinearBackwardWeight&, Stream) override;
  size_t workspace_bytes(const LinearForward&) override;
  size_t workspace_bytes(const LinearBackwardInput&) override;
  size_t workspace_bytes(const LinearBackwardWeight&) override;

  // gelu.cu
  void run(const BiasGeluForward&, Stream) override;
  void run(const BiasGeluBackward&, Stream) override;
  size_t workspace_bytes(const BiasGeluBackward&) override;

  // layernorm.cu
  void run(const LayerNormForward&, Stream) override;
  void run(const LayerNormBackward&, Stream) override;
  size_t workspace_bytes(const LayerNormBackward&) override;

  // attention.cu
  void run(const AttentionForward&, Stream) override;
  // attention_backward.cu
  void run(const AttentionBackward&, Stream) override;
  size_t workspace_bytes(const AttentionBackward&) override;

  // embed.cu
  void run(const EmbedForward&, Stream) override;
  void run(const EmbedBackward&, Stream) override;
  void run(const ClassTokenForward&, Stream) override;
  void run(const ClassTokenBackward&, Stream) override;

  // conv.cu
  void run(const ConvForward&, Stream) override;
  void run(const ConvBackwardInput&, Stream) override;
  void run(const ConvBackwardWeight&, Stream) override;
  size_t workspace_bytes(const ConvForward&) override;
  size_t workspace_bytes(const ConvBackwardInput&) override;
  size_t workspace_bytes(const ConvBackwardWeight&) override;

  // batchnorm.cu
  void run(const BatchNormForward&, Stream) override;
  void run(const BatchNormEvaluate&, Stream) override;
  void run(const BatchNormBackwardSums&, Stream) override;
  void run(const BatchNormBackward&, Stream) override;
  size_t workspace_bytes(const BatchNormBackwardSums&) override;

  // pool.cu
  void run(const MaxPoolForward&, Stream) override;
  void run(const MaxPoolBackward&, Stream) override;
  void run(const AveragePoolForward&, Stream) override;
  void run(const AveragePoolBackward&, Stream) override;

  // dropout.cu
  void run(const Dropout&, Stream) override;

  // loss.cu
  void run(const CrossEntropyForward&, Stream) override;
  void run(const CrossEntropyBackward&, Stream) override;
  void run(const Metrics&, Stream) override;
  void run(const GradientTail&, Stream) override;

  // optimizer.cu
  void run(const GradientNorm&, Stream) override;
  void run(const OptimizerUpdate&, Stream) override;
  void run(const Scale&, Stream) override;
  size_t workspace_bytes(const GradientNorm&) override;

 private:
  cudaStream_t cuda_stream(Stream stream) const {
    return stream ? reinterpret_cast<cudaStream_t>(stream) : compute_;
  }

  cudaStream_t compute_;  // what Stream null stands for
  DeviceProps props_;
  std::unique_ptr<Matmul> matmul_;
  std::unique_ptr<ConvCudnn> cudnn_;  // convolutions are its, if it is there
};

}  // namespace bv::BAREVISION_GPU
