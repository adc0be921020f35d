// cuBLASLt's functions, which load the library at the first call and forward to it: the library's
// constructors take 0.1 s and 200 MB in every process linked with it, and most processes never
// multiply on a GPU.
#include <cublasLt.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace {

void* library() {
  static void* const loaded = [] {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(std::string("cuBLASLt: ") + dlerror());
    return handle;
  }();
  return loaded;
}

template <class Function>
Function* in_library(const char* name) {
  if (void* const found = dlsym(library(), name)) return reinterpret_cast<Function*>(found);
  throw std::runtime_error(std::string("cuBLASLt: ") + dlerror());
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static const auto real = in_library<decltype(cublasLtCreate)>("cublasLtCreate");
  return real(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  static const auto real = in_library<decltype(cublasLtDestroy)>("cublasLtDestroy");
  return real(handle);
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const auto real = in_library<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString");
  return real(status);
}
size_t cublasLtGetVersion() {
  static const auto real = in_library<decltype(cublasLtGetVersion)>("cublasLtGetVersion");
  return real();
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  static const auto real = in_library<decltype(cublasLtMatmul)>("cublasLtMatmul");
  return real(handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
              algorithm, workspace, bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  static const auto real =
      in_library<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
  return real(handle, description, a, b, c, d, preference, wanted, results, found);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  static const auto real =
      in_library<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
  return real(description, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  static const auto real =
      in_library<decltype(cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy");
  return real(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  static const auto real =
      in_library<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
  return real(description, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  static const auto real =
      in_library<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
  return real(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  static const auto real =
      in_library<decltype(cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy");
  return real(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  static const auto real = in_library<decltype(cublasLtMatmulPreferenceSetAttribute)>(
      "cublasLtMatmulPreferenceSetAttribute");
  return real(preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  static const auto real =
      in_library<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
  return real(layout, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  static const auto real =
      in_library<decltype(cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy");
  return real(layout);
}
