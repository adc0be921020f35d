// The CPU's table of operations. Every kernels/NAME.cpp is compiled twice, with
// -DBAREVISION_ISA=avx2 (x86-64-v3) and -DBAREVISION_ISA=avx512 (x86-64-v4), into a namespace each;
// which of the two runs is chosen at run time.
//
// The linker keeps one copy of every inline function outside these namespaces, and must not find
// one with AVX-512 code in it: the kernel files therefore use no std:: containers, strings or
// algorithms that may stay un-inlined (tests/kernels/check_avx512_symbols looks). What needs them, such as
// oneDNN's primitives, lives in kernels/cpu/*.cpp, compiled once for x86-64-v3.
#pragma once
#include <memory>

#include "kernels/kernels.h"

#ifndef BAREVISION_ISA
#error "compile with -DBAREVISION_ISA=avx2 or avx512"
#endif

namespace bv {
class ConvOneDnn;
class MatmulOneDnn;
}  // namespace bv

namespace bv::BAREVISION_ISA {

class CpuKernels final : public Kernels {
 public:
  CpuKernels();
  ~CpuKernels() override;
  using Kernels::workspace_bytes;

  // input.cpp
  void run(const InputPatches&, Stream) override;

  // linear.cpp
  void run(const LinearForward&, Stream) override;
  void run(const LinearBackwardInput&, Stream) override;
  void run(const LinearBackwardWeight&, Stream) override;
  size_t workspace_bytes(const LinearForward&) override;
  size_t workspace_bytes(const LinearBackwardInput&) override;
  size_t workspace_bytes(const LinearBackwardWeight&) override;

  // gelu.cpp
  void run(const BiasGeluForward&, Stream) override;
  void run(const BiasGeluBackward&, Stream) override;
  size_t workspace_bytes(const BiasGeluBackward&) override;

  // layernorm.cpp
  void run(const LayerNormForward&, Stream) override;
  void run(const LayerNormBackward&, Stream) override;
  size_t workspace_bytes(const LayerNormBackward&) override;

  // attention.cpp
  void run(const AttentionForward&, Stream) override;
  void run(const AttentionBackward&, Stream) override;
  size_t workspace_bytes(const AttentionForward&) override;
  size_t workspace_bytes(const AttentionBackward&) override;

  // embed.cpp
  void run(const EmbedForward&, Stream) override;
  void run(const EmbedBackward&, Stream) override;
  void run(const ClassTokenForward&, Stream) override;
  void run(const ClassTokenBackward&, Stream) override;

  // conv.cpp
  void run(const ConvForward&, Stream) override;
  void run(const ConvBackwardInput&, Stream) override;
  void run(const ConvBackwardWeight&, Stream) override;
  size_t workspace_bytes(const ConvForward&) override;
  size_t workspace_bytes(const ConvBackwardInput&) override;
  size_t workspace_bytes(const ConvBackwardWeight&) override;

  // batchnorm.cpp
  void run(const BatchNormForward&, Stream) override;
  void run(const BatchNormEvaluate&, Stream) override;
  void run(const BatchNormBackwardSums&, Stream) override;
  void run(const BatchNormBackward&, Stream) override;
  size_t workspace_bytes(const BatchNormBackwardSums&) override;

  // pool.cpp
  void run(const MaxPoolForward&, Stream) override;
  void run(const MaxPoolBackward&, Stream) override;
  void run(const AveragePoolForward&, Stream) override;
  void run(const AveragePoolBackward&, Stream) override;

  // dropout.cpp
  void run(const Dropout&, Stream) override;

  // loss.cpp
  void run(const CrossEntropyForward&, Stream) override;
  void run(const CrossEntropyBackward&, Stream) override;
  void run(const Metrics&, Stream) override;
  void run(const GradientTail&, Stream) override;

  // optimizer.cpp
  void run(const GradientNorm&, Stream) override;
  void run(const OptimizerUpdate&, Stream) override;
  void run(const Scale&, Stream) override;
  size_t workspace_bytes(const GradientNorm&) override;

 private:
  std::unique_ptr<MatmulOneDnn> matmul_;
  std::unique_ptr<ConvOneDnn> conv_;
};

}  // namespace bv::BAREVISION_ISA
