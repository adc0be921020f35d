// The stand-in's cuBLASLt refuses what cuBLASLt refuses. Each case is a correct product but for one
// mistake.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace {

float number(size_t i) { return float(int(i % 7) - 3); }

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t count, bool filled = false) {
    EXPECT_EQ(cudaMalloc(&data, count * sizeof(T)), cudaSuccess);
    if (!filled) return;
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = T(number(i));
    cudaMemcpyAsync(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data); }
  T* data = nullptr;
};

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
  size_t a_offset = 0;           // floats
  size_t missing_workspace = 0;  // bytes
  size_t workspace_offset = 0;   // bytes
  bool other_algorithm = false;

  cublasStatus_t plan_status = CUBLAS_STATUS_SUCCESS, run_status = CUBLAS_STATUS_SUCCESS;
  std::vector<float> d = std::vector<float>(m * n);

  explicit Call(const std::function<void(Call&)>& change) {
    change(*this);
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
    for (const auto pointer :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      cublasLtMatmulPreferenceSetAttribute(preference, pointer, &alignment, sizeof alignment);
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
    const DeviceArray<float> a_data(64, true), b_data(64, true), bias(m, true), c_data(64);
    const DeviceArray<char> workspace(max_workspace + workspace_offset);
    const void* given = give_bias ? bias.data : nullptr;
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &given,
                                   sizeof given);
    if (other_algorithm) {
      const uint32_t with_bias = CUBLASLT_EPILOGUE_BIAS;
      cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias,
                                     sizeof with_bias);
    }
    const float alpha = 1, beta = 0;
    run_status = cublasLtMatmul(handle, description, &alpha, a_data.data + a_offset, a, b_data.data,
                                b, &beta, c_data.data, c, c_data.data, c, &result.algo,
                                workspace.data + workspace_offset,
                                result.workspaceSize - missing_workspace, nullptr);
    cudaMemcpyAsync(d.data(), c_data.data, sizeof(float) * m * n, cudaMemcpyDeviceToHost, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
};

TEST(SimtCublasLt, AddsTheBiasToEachColumn) {
  const Call call([](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS, c.give_bias = true; });
  ASSERT_EQ(call.run_status, CUBLAS_STATUS_SUCCESS);
  for (int j = 0; j < Call::n; ++j)
    for (int i = 0; i < Call::m; ++i) {
      float expected = number(i);
      for (int p = 0; p < Call::k; ++p)
        expected += number(p * Call::m + i) * number(j * Call::k + p);
      EXPECT_EQ(call.d[j * Call::m + i], expected) << i << "," << j;
    }
}

TEST(SimtCublasLt, RefusesMistakesAndNothingElse) {
  constexpr auto success = CUBLAS_STATUS_SUCCESS, invalid = CUBLAS_STATUS_INVALID_VALUE,
                 unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
  const struct {
    const char* name;
    cublasStatus_t plan_status, run_status;
    std::function<void(Call&)> change;
  } cases[] = {
      {"A's leading dimension is less than its rows", invalid, success,
       [](Call& c) { c.a_leading_dimension = Call::m - 1; }},
      {"D's leading dimension is less than its rows", invalid, success,
       [](Call& c) { c.d_leading_dimension = Call::m - 1; }},
      {"factors of different k", invalid, success, [](Call& c) { c.b_rows = Call::k + 1; }},
      {"factors of different types", unsupported, success, [](Call& c) { c.a_type = CUDA_R_16F; }},
      {"fp16 factors, bf16 product", unsupported, success,
       [](Call& c) { c.a_type = c.b_type = CUDA_R_16F, c.d_type = CUDA_R_16BF; }},
      {"TF32", unsupported, success, [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
      {"no bias for an epilogue that adds one", success, invalid,
       [](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS; }},
      {"a pointer aligned to 4 bytes, planned for 16", success, invalid,
       [](Call& c) { c.a_offset = 1; }},
      {"a workspace at half of what Hopper wants", success, invalid,
       [](Call& c) { c.workspace_offset = 128; }},
      {"one byte of workspace too few", success, invalid, [](Call& c) { c.missing_workspace = 1; }},
      {"the algorithm of another product", success, invalid,
       [](Call& c) { c.other_algorithm = c.give_bias = true; }},
      {"no mistake", success, success, [](Call&) {}},
      {"a pointer aligned to 4 bytes, as planned", success, success,
       [](Call& c) { c.alignment = 4, c.a_offset = 1; }},
      {"no workspace, as planned", success, success, [](Call& c) { c.max_workspace = 0; }},
  };
  for (const auto& c : cases) {
    const Call call(c.change);
    EXPECT_EQ(call.plan_status, c.plan_status) << c.name;
    EXPECT_EQ(call.run_status, c.run_status) << c.name;
  }
}

}  // namespace
