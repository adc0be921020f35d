// cuBLASLt is column-major: it sees a row-major [rows, columns] matrix as [columns, rows]. So it
// computes the transposed product
//   c^T [N, M] = b^T [N, K]  a^T [K, M]
// with its m, n, k = N, M, K, its A = our b, its B = our a, leading dimensions = our row lengths:
//   b in memory   cuBLASLt sees   and needs [N, K]        a in memory   sees     and needs [K, M]
//   [K, N]        [N, K], ld N    as it is                [M, K]        [K, M]   as it is
//   [N, K]        [K, N], ld K    transposed              [K, M]        [M, K]   transposed
// Its bias has one element per row of c^T: our [N].
// Equal runs must give equal bits: the algorithm is the heuristic's first for the shape, never the
// fastest in a trial. If it splits K, a second pass must sum the parts in fp32 (COMPUTE_TYPE):
// INPLACE lets blocks add to the output in an unspecified order, and OUTPUT_TYPE rounds each part
// to 16 bits.
#include "kernels/cuda/matmul.h"

#include <cublasLt.h>

#include <cstdint>

#include "kernels/cuda/owner.h"

namespace bv::BAREVISION_GPU {
namespace {

constexpr uint64_t workspace_limit = uint64_t{32} << 20;  // cuBLAS's own on Hopper
constexpr uint32_t alignment = 16;                        // of all pointers, in bytes

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t data_type(DType t) {
  return t == DType::fp32 ? CUDA_R_32F : t == DType::fp16 ? CUDA_R_16F : CUDA_R_16BF;
}

struct Layout : Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> {
  // A row-major matrix.
  Layout(DType t, int rows, int columns) {
    check(cublasLtMatrixLayoutCreate(&handle, data_type(t), columns, rows, columns),
          "cublasLtMatrixLayoutCreate");
  }
};

struct Description : Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> {
  Description() {
    check(cublasLtMatmulDescCreate(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    check(cublasLtMatmulDescSetAttribute(handle, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
};

struct Preference : Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> {
  Preference() { check(cublasLtMatmulPreferenceCreate(&handle), "cublasLtMatmulPreferenceCreate"); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
};

int32_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

std::string describe(const Product& p) {
  static constexpr const char* names[] = {"fp32", "fp16", "bf16"};
  return "cuBLASLt has no algorithm for [" + std::to_string(p.M) + ", " + std::to_string(p.N) +
         "] = [" + std::to_string(p.M) + ", " + std::to_string(p.K) + "] [" + std::to_string(p.K) +
         ", " + std::to_string(p.N) + "]" + (p.has_bias ? " + bias" : "") + " of " +
         names[int(p.dtype)] + " to " + names[int(p.c_dtype)];
}

}  // namespace

struct Matmul::Library : Owner<cublasLtHandle_t, cublasLtDestroy> {
  Library() { check(cublasLtCreate(&handle), "cublasLtCreate"); }
};

struct Matmul::Plan {
  Layout a, b, c;  // our a, b, c
  Description description;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;

  explicit Plan(const Product& p)
      : a(p.dtype, p.a_transposed ? p.K : p.M, p.a_transposed ? p.M : p.K),
        b(p.dtype, p.b_transposed ? p.N : p.K, p.b_transposed ? p.K : p.N),
        c(p.c_dtype, p.M, p.N) {}
};

Matmul::Matmul() : library_(std::make_unique<Library>()) {}
Matmul::~Matmul() = default;

const Matmul::Plan& Matmul::plan(const Product& p) {
  if (const auto found = plans_.find(p); found != plans_.end()) return *found->second;
  auto plan = std::make_unique<Plan>(p);
  const Description& d = plan->description;
  d.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.b_transposed));
  d.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.a_transposed));
  if (p.has_bias) {
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    // A placeholder: until run() sets the real pointer, only the alignment matters.
    d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{alignment}));
  }
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_limit);
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto pointer :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    preference.set(pointer, alignment);

  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library_->handle, d.handle, plan->b.handle, plan->a.handle, plan->c.handle, plan->c.handle,
      preference.handle, 1, &result, &found);
  if (status == CUBLAS_STATUS_SUCCESS && found == 0) throw std::runtime_error(describe(p));
  check(status, describe(p).c_str());
  check(result.state, describe(p).c_str());
  plan->algorithm = result.algo, plan->workspace_bytes = result.workspaceSize;
  return *plans_.emplace(p, std::move(plan)).first->second;
}

size_t Matmul::workspace_bytes(const Product& p) { return plan(p).workspace_bytes; }

void Matmul::run(const Product& p, const ProductArguments& a, cudaStream_t stream) {
  const Plan& ready = plan(p);
  if (p.has_bias) ready.description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias);
  const float alpha = 1, beta = a.accumulate ? 1 : 0;
  check(cublasLtMatmul(library_->handle, ready.description.handle, &alpha, a.b, ready.b.handle, a.a,
                       ready.a.handle, &beta, a.c, ready.c.handle, a.c, ready.c.handle,
                       &ready.algorithm, a.workspace, ready.workspace_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace bv::BAREVISION_GPU
