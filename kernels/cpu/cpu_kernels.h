// The CPU's table of operations. Every operation's NAME.cpp is compiled twice, with
// -DBAREVISION_ISA=avx2 (x86-64-v3) and -DBAREVISION_ISA=avx512 (x86-64-v4), each time into its own
// namespace; one of the two is chosen at run time.
// The linker keeps one copy of every inline function outside these namespaces, and this copy must
// not contain AVX-512 code: the kernel files therefore use no std:: containers, strings or
// algorithms that may not be inlined (tests/kernels/check_avx512_symbols checks this). Code that
// needs them, such as oneDNN's primitives, lives in kernels/cpu/*.cpp, compiled once for x86-64-v3.
#pragma once
#include <memory>

#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"

#ifndef BAREVISION_ISA
#error "compile with -DBAREVISION_ISA=avx2 or avx512"
#endif

namespace bv {
class ConvOneDnn;
class MatmulOneDnn;
// From kernels/cpu/stream.h, without its includes.
void run_copy_on(Stream stream, const void* operation, size_t bytes, void* self,
                 void (*call)(void* self, const void* operation));
}  // namespace bv

namespace bv::BAREVISION_ISA {

static inline const float* floats(const void* p) { return static_cast<const float*>(p); }
static inline float* floats(void* p) { return static_cast<float*>(p); }
// Tensors of an operation's dtype, T.
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}
class CpuKernels final : public KernelRows<CpuKernels> {
 public:
  explicit CpuKernels(bool has_bf16);
  ~CpuKernels() override;

  // Defined for each operation, as a specialisation, in its NAME.cpp.
  template <class Op>
  void run(const Op&);
  template <class Op>
  size_t workspace(const Op&);

  template <class Op>
  void dispatch(const Op& op, Stream stream) {
    if constexpr (requires { op.dtype; } && !every_device_has_its_dtypes<Op>)
      if (op.dtype == DType::fp16) {  // the CPU computes in fp32 and bf16
        Validation refusal({.only_fp32 = true});
        op.describe(refusal);
      }
    if (!stream) return run(op);
    run_copy_on(stream, &op, sizeof op, this, [](void* self, const void* copy) {
      static_cast<CpuKernels*>(self)->run(*static_cast<const Op*>(copy));
    });
  }

 private:
  // Calls f(T{}) with the element type; for operations that convert elements, fp16 is allowed, too.
  template <class F>
  void with_any_type(DType dtype, F f) const {
    if (dtype == DType::fp16) return f(simd::fp16{});
    with_type(dtype, f);
  }
  template <class F>
  void with_type(DType dtype, F f) const {
    if (dtype == DType::fp32) return f(float{});
    if constexpr (simd::width == 16)
      if (has_bf16_) return f(simd::native_bf16{});
    f(simd::bf16{});
  }

  bool has_bf16_;  // whether to use the CPU's bf16 instructions
  std::unique_ptr<MatmulOneDnn> matmul_;
  std::unique_ptr<ConvOneDnn> conv_;
};

}  // namespace bv::BAREVISION_ISA
