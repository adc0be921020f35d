// The stand-in's cuBLASLt refuses what cuBLASLt refuses. Each case is a correct product except for
// one mistake.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
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

// D [m, n] = A [m, k] B [k, n] (+ bias), all column-major, planned and run as in matmul.cpp.
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

// (1 + 2^-9) - 1 in bf16, which can represent each term but not 1 + 2^-9.
float bias_after_product(int m) {
  constexpr int n = 8, k = 8;
  const auto bits = [](float x) { return uint16_t(std::bit_cast<uint32_t>(x) >> 16); };
  const auto filled = [&](size_t count, auto value_at) {
    auto array = std::make_unique<DeviceArray<uint16_t>>(count);
    std::vector<uint16_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = bits(value_at(i));
    cudaMemcpyAsync(array->data, values.data(), 2 * count, cudaMemcpyHostToDevice, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return array;
  };
  const auto a = filled(size_t(m) * k, [](size_t) { return 1.0f; });
  const auto b = filled(n * k, [](size_t i) { return i % k ? i % k == 1 ? 0x1p-9f : 0 : 1; });
  const auto bias = filled(size_t(m), [](size_t) { return -1.0f; });
  const DeviceArray<uint16_t> d(size_t(m) * n);

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t of_a = nullptr, of_b = nullptr, of_d = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&of_a, CUDA_R_16BF, uint64_t(m), k, m);
  cublasLtMatrixLayoutCreate(&of_b, CUDA_R_16BF, k, n, k);
  cublasLtMatrixLayoutCreate(&of_d, CUDA_R_16BF, uint64_t(m), n, m);
  cublasLtMatmulPreferenceCreate(&preference);
  const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                 sizeof epilogue);
  const void* const bias_data = bias->data;
  cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_data,
                                 sizeof bias_data);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, description, of_a, of_b, of_d, of_d, preference,
                                           1, &result, &found),
            CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  EXPECT_EQ(cublasLtMatmul(handle, description, &one, a->data, of_a, b->data, of_b, &zero, d.data,
                           of_d, d.data, of_d, &result.algo, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  uint16_t first = 0;
  cudaMemcpyAsync(&first, d.data, sizeof first, cudaMemcpyDeviceToHost, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  cublasLtMatmulPreferenceDestroy(preference);
  for (const auto layout : {of_a, of_b, of_d}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
  return std::bit_cast<float>(uint32_t{first} << 16);
}

TEST(SimtCublasLt, RoundsBeforeTheBiasWhereColumnsAreNotAligned) {
  EXPECT_EQ(bias_after_product(8), 0x1p-9f);
  EXPECT_EQ(bias_after_product(16), 0x1p-9f);
  EXPECT_EQ(bias_after_product(5), 0);
  EXPECT_EQ(bias_after_product(12), 0);
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
