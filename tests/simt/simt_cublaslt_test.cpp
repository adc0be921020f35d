// The stand-in's cuBLASLt refuses what cuBLASLt refuses. Each case is a product that is right but for
// one mistake.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace {

template <class T>
T* device(size_t count) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(p);
}

// D [m, n] = A [m, k] B [k, n] (+ bias), all column-major, planned and run as matmul.cpp does it.
struct Call {
  static constexpr int m = 5, n = 3, k = 4;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t a_type = CUDA_R_32F, b_type = CUDA_R_32F, d_type = CUDA_R_32F;
  int64_t a_leading_dimension = m, d_leading_dimension = m;
  int b_rows = k;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT, alignment = 16;
  uint64_t max_workspace = 1 << 20;
  bool give_bias = false;
  size_t a_offset = 0;        // floats
  size_t less_workspace = 0;  // than the algorithm wants
  bool other_algorithm = false;

  cublasStatus_t plan_status{}, run_status{};
  std::vector<float> d;

  Call() = default;
  explicit Call(const std::function<void(Call&)>& change) { change(*this); }

  void run() {
    plan_status = run_status = CUBLAS_STATUS_SUCCESS;
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&description, compute, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, a_type, m, k, a_leading_dimension);
    cublasLtMatrixLayoutCreate(&b, b_type, b_rows, n, b_rows);
    cublasLtMatrixLayoutCreate(&c, d_type, m, n, d_leading_dimension);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &max_workspace, sizeof max_workspace);
    for (int i = 0; i < 4; ++i)
      cublasLtMatmulPreferenceSetAttribute(
          preference,
          cublasLtMatmulPreferenceAttributes_t(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
          &alignment, sizeof alignment);
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof epilogue);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    plan_status = cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, c, c, preference, 1,
                                                 &result, &found);
    EXPECT_EQ(found, plan_status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    if (found) multiply(handle, description, a, b, c, result);
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a, b, c}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(description);
    cublasLtDestroy(handle);
  }

 private:
  void multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                cublasLtMatmulHeuristicResult_t result) {
    float *a_data = device<float>(64), *b_data = device<float>(64), *c_data = device<float>(64);
    float* bias = device<float>(m);
    char* workspace = device<char>(max_workspace);
    std::vector<float> numbers(64);
    for (int i = 0; i < 64; ++i) numbers[i] = float(i % 7 - 3);
    for (float* to : {a_data, b_data})
      cudaMemcpyAsync(to, numbers.data(), sizeof(float) * 64, cudaMemcpyHostToDevice, nullptr);
    cudaMemcpyAsync(bias, numbers.data(), sizeof(float) * m, cudaMemcpyHostToDevice, nullptr);
    const void* given = give_bias ? bias : nullptr;
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &given,
                                   sizeof given);
    if (other_algorithm) {
      const uint32_t with_bias = CUBLASLT_EPILOGUE_BIAS;
      cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias,
                                     sizeof with_bias);
    }
    const float alpha = 1, beta = 0;
    run_status = cublasLtMatmul(handle, description, &alpha, a_data + a_offset, a, b_data, b, &beta,
                                c_data, c, c_data, c, &result.algo, workspace,
                                result.workspaceSize - less_workspace, nullptr);
    d.resize(m * n);
    cudaMemcpyAsync(d.data(), c_data, sizeof(float) * m * n, cudaMemcpyDeviceToHost, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    for (void* p :
         {static_cast<void*>(a_data), static_cast<void*>(b_data), static_cast<void*>(c_data),
          static_cast<void*>(bias), static_cast<void*>(workspace)})
      cudaFree(p);
  }
};

TEST(SimtCublasLt, AddsTheBiasToEachColumn) {
  Call call([](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS, c.give_bias = true; });
  call.run();
  ASSERT_EQ(call.run_status, CUBLAS_STATUS_SUCCESS);
  const auto number = [](int i) { return float(i % 7 - 3); };
  for (int j = 0; j < Call::n; ++j)
    for (int i = 0; i < Call::m; ++i) {
      float expected = number(i);
      for (int p = 0; p < Call::k; ++p)
        expected += number(p * Call::m + i) * number(j * Call::k + p);
      EXPECT_EQ(call.d[j * Call::m + i], expected) << i << "," << j;
    }
}

TEST(SimtCublasLt, RefusesToPlan) {
  struct Case {
    const char* mistake;
    cublasStatus_t status;
    std::function<void(Call&)> change;
  };
  const Case cases[] = {
      {"a leading dimension below the rows", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.a_leading_dimension = Call::m - 1; }},
      {"the same of D", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.d_leading_dimension = Call::m - 1; }},
      {"factors of different k", CUBLAS_STATUS_INVALID_VALUE,
       [](Call& c) { c.b_rows = Call::k + 1; }},
      {"factors of different types", CUBLAS_STATUS_NOT_SUPPORTED,
       [](Call& c) { c.a_type = CUDA_R_16F; }},
      {"fp16 factors, bf16 product", CUBLAS_STATUS_NOT_SUPPORTED,
       [](Call& c) { c.a_type = c.b_type = CUDA_R_16F, c.d_type = CUDA_R_16BF; }},
      {"TF32", CUBLAS_STATUS_NOT_SUPPORTED,
       [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
  };
  for (const Case& c : cases) {
    Call call(c.change);
    call.run();
    EXPECT_EQ(call.plan_status, c.status) << c.mistake;
  }
}

TEST(SimtCublasLt, RefusesToRun) {
  struct Case {
    const char* mistake;
    std::function<void(Call&)> change;
  };
  const Case cases[] = {
      {"no bias where the epilogue adds one", [](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS; }},
      {"a pointer at a multiple of 4 bytes, planned for 16", [](Call& c) { c.a_offset = 1; }},
      {"one byte of workspace too few", [](Call& c) { c.less_workspace = 1; }},
      {"the algorithm of another product", [](Call& c) { c.other_algorithm = c.give_bias = true; }},
  };
  for (const Case& c : cases) {
    Call call(c.change);
    call.run();
    EXPECT_EQ(call.plan_status, CUBLAS_STATUS_SUCCESS) << c.mistake;
    EXPECT_EQ(call.run_status, CUBLAS_STATUS_INVALID_VALUE) << c.mistake;
  }
}

// What is right, is not refused: pointers as aligned as was said, and no workspace where none is
// allowed.
TEST(SimtCublasLt, TakesWhatIsRight) {
  for (const auto& change : std::vector<std::function<void(Call&)>>{
           [](Call&) {},
           [](Call& c) { c.alignment = 4, c.a_offset = 1; },
           [](Call& c) { c.max_workspace = 0; },
       }) {
    Call call(change);
    call.run();
    EXPECT_EQ(call.plan_status, CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(call.run_status, CUBLAS_STATUS_SUCCESS);
  }
}

}  // namespace
