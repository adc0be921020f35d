// Refuses the arguments that cuBLASLt refuses. An algorithm records its product, so that using it
// for another product, or with less aligned pointers, is an error. The workspace is only poisoned.
// If a matrix's columns don't begin at multiples of 16 bytes, a 16-bit D is as imprecise as
// cuBLASLt's, which on an H100 stored the product in D and added the bias to that.
#include "simt/include/cublasLt.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "simt/libraries/matrix_product.h"

inline namespace simt_cuda {

struct CublasLtHandle {};
struct CublasLtMatmulDesc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct CublasLtMatrixLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading_dimension;
};
struct CublasLtMatmulPreference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

struct Algorithm {  // stored in cublasLtMatmulAlgo_t
  uint64_t product, workspace_bytes;
  uint32_t alignment[4];
  uint64_t unused[4];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

uint64_t transposed(int32_t operation, uint64_t yes, uint64_t no) {
  return operation == CUBLAS_OP_N ? no : yes;
}

// A hash of a product's sizes and types, for comparison (FNV-1a).
uint64_t product_of(const CublasLtMatmulDesc& o, const CublasLtMatrixLayout& a,
                    const CublasLtMatrixLayout& b, const CublasLtMatrixLayout& c) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t x) { hash = (hash ^ x) * 0x100000001b3; };
  add(o.transposed_a), add(o.transposed_b), add(o.epilogue);
  for (const auto* m : {&a, &b, &c})
    add(m->type), add(m->rows), add(m->columns), add(m->leading_dimension);
  return hash;
}

bool same(const CublasLtMatrixLayout& a, const CublasLtMatrixLayout& b) {
  return a.type == b.type && a.rows == b.rows && a.columns == b.columns &&
         a.leading_dimension == b.leading_dimension;
}

cublasStatus_t check(const CublasLtMatmulDesc& o, const CublasLtMatrixLayout& a,
                     const CublasLtMatrixLayout& b, const CublasLtMatrixLayout& c,
                     const CublasLtMatrixLayout& d) {
  for (const auto* m : {&a, &b, &c, &d})
    if (m->rows == 0 || m->columns == 0 || m->leading_dimension < int64_t(m->rows))
      return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t k = transposed(o.transposed_a, a.rows, a.columns);
  if (transposed(o.transposed_a, a.columns, a.rows) != d.rows ||
      transposed(o.transposed_b, b.rows, b.columns) != d.columns ||
      transposed(o.transposed_b, b.columns, b.rows) != k || !same(c, d))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool types = a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F);
  if (!types || o.compute != CUBLAS_COMPUTE_32F || o.scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* p, uint32_t bytes) {
  return p && reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

simt::Format format(cudaDataType_t type) {
  return type == CUDA_R_32F   ? simt::Format::fp32
         : type == CUDA_R_16F ? simt::Format::fp16
                              : simt::Format::bf16;
}
simt::Matrix matrix(const void* data, const CublasLtMatrixLayout& m, int32_t operation) {
  return {data, m.leading_dimension, format(m.type), operation != CUBLAS_OP_N};
}

bool in_whole_packs(const CublasLtMatrixLayout& m) {
  return m.leading_dimension % (m.type == CUDA_R_32F ? 4 : 8) == 0;
}

template <class T, class... Args>
cublasStatus_t create(T** p, Args... args) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  *p = new T{args...};
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t set(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return create(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns,
                                          int64_t leading_dimension) {
  return create(layout, type, rows, columns, leading_dimension);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  return create(description, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (!d) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d->transposed_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d->transposed_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (!p) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(p->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(p->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                 bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!o || !a || !b || !c || !d || !preference || requested < 1 || !results || !returned)
    return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  if (const auto wrong = check(*o, *a, *b, *c, *d)) return wrong;
  const uint64_t product = product_of(*o, *a, *b, *c);
  const uint64_t wish = 1024 + product % 8 * 512;  // unpredictable, like cuBLASLt's
  Algorithm algorithm{.product = product,
                      .workspace_bytes = std::min(preference->workspace_bytes, wish),
                      .alignment = {},
                      .unused = {}};
  std::copy_n(preference->alignment, 4, algorithm.alignment);
  results[0] = {.algo = {},
                .workspaceSize = algorithm.workspace_bytes,
                .state = CUBLAS_STATUS_SUCCESS,
                .wavesCount = 1,
                .reserved = {}};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!o || !alpha || !beta || !a_layout || !b_layout || !c_layout || !d_layout || !algo)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const auto wrong = check(*o, *a_layout, *b_layout, *c_layout, *d_layout)) return wrong;
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  const bool has_bias = o->epilogue == CUBLASLT_EPILOGUE_BIAS;
  const uint64_t scratch = algorithm.workspace_bytes;
  if (algorithm.product != product_of(*o, *a_layout, *b_layout, *c_layout) ||
      !aligned(a, algorithm.alignment[0]) || !aligned(b, algorithm.alignment[1]) ||
      !aligned(c, algorithm.alignment[2]) || !aligned(d, algorithm.alignment[3]) ||
      (has_bias && !aligned(o->bias, 16)) || workspace_bytes < scratch ||
      (scratch && !aligned(workspace, 256)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const simt::MatrixProduct product{
      .d = d,
      .a = matrix(a, *a_layout, o->transposed_a),
      .b = matrix(b, *b_layout, o->transposed_b),
      .c = matrix(c, *c_layout, CUBLAS_OP_N),
      .bias = has_bias ? o->bias : nullptr,
      .m = int64_t(d_layout->rows),
      .n = int64_t(d_layout->columns),
      .k = int64_t(transposed(o->transposed_a, a_layout->rows, a_layout->columns)),
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .through_d =
          !(in_whole_packs(*a_layout) && in_whole_packs(*b_layout) && in_whole_packs(*d_layout))};
  const dim3 grid(unsigned(product.row_tiles()), unsigned(product.column_tiles()));
  const simt::Launch launch{.name = "cublasLtMatmul",
                            .grid = grid,
                            .block = 1,
                            .shared_bytes = 0,
                            .body =
                                [=] {
                                  if (blockIdx.x == 0 && blockIdx.y == 0 && scratch)
                                    std::memset(workspace, 0xFF, scratch);
                                  product.compute_tile(blockIdx.x, blockIdx.y);
                                },
                            .bytes_read = product.bytes_read(),
                            .bytes_written = product.bytes_written()};
  const cudaError_t error = simt::launch(launch, stream);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace simt_cuda
