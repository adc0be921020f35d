// Compiled with the toolkit's header and with the stand-in's: both must define the same values.
#include <cublasLt.h>
#include <gtest/gtest.h>

static_assert(CUDA_R_32F == 0 && CUDA_R_16F == 2 && CUDA_R_16BF == 14);
static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_NOT_INITIALIZED == 1 &&
              CUBLAS_STATUS_INVALID_VALUE == 7 && CUBLAS_STATUS_EXECUTION_FAILED == 13 &&
              CUBLAS_STATUS_NOT_SUPPORTED == 15);
static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1);
static_assert(CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77);
static_assert(CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4);
static_assert(CUBLASLT_REDUCTION_SCHEME_NONE == 0 && CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2 &&
              CUBLASLT_REDUCTION_SCHEME_MASK == 7);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 &&
              CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 &&
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == 6 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == 7 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);

#ifdef CUBLAS_VER_MAJOR  // the toolkit's header
namespace {

// Checks, even without a GPU, that kernels/cuda/lazy/cublaslt.cpp finds each library function.
TEST(CublasLt, IsLoadedByItsFirstCalls) {
  EXPECT_EQ(cublasLtGetVersion() / 10000, size_t{CUBLAS_VER_MAJOR});
  EXPECT_STRNE(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE), "");
  cublasLtMatrixLayout_t layout;
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 2, 3, 2), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t description;
  ASSERT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const int32_t transposed = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                           sizeof transposed),
            CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulPreference_t preference;
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  const uint64_t bytes = 1 << 20;
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
            CUBLAS_STATUS_SUCCESS);
  // The next calls would need a GPU or a handle; here their functions only have to be found.
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS) {
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  } else {
    EXPECT_NE(cublasLtDestroy(nullptr), CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  EXPECT_NE(cublasLtMatmulAlgoGetHeuristic(nullptr, description, layout, layout, layout, layout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(cublasLtMatmul(nullptr, description, nullptr, nullptr, layout, nullptr, layout, nullptr,
                           nullptr, layout, nullptr, layout, nullptr, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescDestroy(description), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
#endif
