// Three failures of 16 bits: a sum whose addends are too small for it, a weight that stops moving,
// a gradient that becomes 0. The remedies are sums and weights in fp32 and a scaled loss.
//   make try FILE=learn/examples/precision.cu
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

// results [7]; each operation rounds to the type of its result
__global__ void lose(float* results) {
  __nv_bfloat16 sum_16 = __float2bfloat16(0);
  float sum_32 = 0;
  for (int i = 0; i < 1000; ++i) {
    sum_16 = __float2bfloat16(__bfloat162float(sum_16) + 0.01f);
    sum_32 += 0.01f;
  }
  results[0] = __bfloat162float(sum_16), results[1] = sum_32;

  __nv_bfloat16 weight_16 = __float2bfloat16(1);
  float weight_32 = 1;
  for (int step = 0; step < 100; ++step) {
    weight_16 = __float2bfloat16(__bfloat162float(weight_16) - 0.001f);
    weight_32 -= 0.001f;
  }
  results[2] = __bfloat162float(weight_16), results[3] = weight_32;

  const float gradient = 1e-8f, scale = 65536;
  results[4] = __half2float(__float2half(gradient));
  results[5] = __half2float(__float2half(gradient * scale)) / scale;
  results[6] = __bfloat162float(__float2bfloat16(gradient));
}

int main() {
  float r[7], *gpu_results;
  cudaMalloc(&gpu_results, sizeof r);
  lose<<<1, 1>>>(gpu_results);
  const cudaError_t error = cudaMemcpy(r, gpu_results, sizeof r, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  printf("0.01 added 1000 times:     in bf16 %.4g, in fp32 %.4g\n", r[0], r[1]);
  printf("1 - 0.001, 100 times:      in bf16 %.4g, in fp32 %.4g\n", r[2], r[3]);
  printf("a gradient of 1e-8:        in fp16 %.3g, scaled by 65536 %.3g, in bf16 %.3g\n", r[4],
         r[5], r[6]);
  return !(r[0] < 9 && r[2] == 1 && r[4] == 0 && r[5] > 0);
}
