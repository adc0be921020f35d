// Compiled with the toolkit's header and with the stand-in's: both must define the same numbers.
#include <cublasLt.h>

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
