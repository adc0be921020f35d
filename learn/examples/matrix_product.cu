// c = a b for square matrices, in tiles: a block computes 32 x 32 elements of c and copies tiles
// of a and b to shared memory, where each element is read 32 times.
//   make try FILE=learn/examples/matrix_product.cu
//   make try FILE=learn/examples/matrix_product.cu DEFINE=FORGET_BARRIER   names two races
//   make try FILE=learn/examples/matrix_product.cu DEFINE=PAD
//
// Find the bank conflict. Shared memory has 32 banks; the 4-byte word w lies in bank w % 32, and a
// bank serves one word at a time: a warp's access takes one turn per different word in its
// busiest bank. A warp is 32 threads with the same threadIdx.y here: lane = threadIdx.x = tx.
//   access                      words of the 32 lanes      banks      turns
//   b_tile[ty][tx] = ...        32 ty + tx                 all 32     1
//   ... b_tile[k][tx]           32 k + tx                  all 32     1
//   a_tile[tx][ty] = ...        32 tx + ty                 ty alone   32
//   ... a_tile[k][ty]           32 k + ty, one word        one        1 (broadcast)
// a_tile is transposed, and its rows of 32 words put a whole column into one bank. Rows of 33
// (DEFINE=PAD) spread it: 33 tx + ty is in another bank for each lane: 1 turn. For each pair of
// tiles, a warp takes 32 + 1 turns to store and 32 * (1 + 1) to read, 97; with padding 66.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

constexpr int tile = 32;
#ifdef PAD
constexpr int row = tile + 1;
#else
constexpr int row = tile;
#endif

// a, b, c [n, n]; n is a multiple of 32
__global__ void matrix_product(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[tile][row], b_tile[tile][tile];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int x = blockIdx.x * tile + tx, y = blockIdx.y * tile + ty;
  float sum = 0;
  for (int begin = 0; begin < n; begin += tile) {
    a_tile[tx][ty] = a[y * n + begin + tx];
    b_tile[ty][tx] = b[(begin + ty) * n + x];
    __syncthreads();  // both tiles are complete
    for (int k = 0; k < tile; ++k) sum += a_tile[k][ty] * b_tile[k][tx];
#ifndef FORGET_BARRIER
    __syncthreads();  // all threads have read them: they may be overwritten
#endif
  }
  c[y * n + x] = sum;
}

// How many turns a warp takes to access the 32 words at first, first + stride, ...
int turns(int first, int stride) {
  int words[32] = {}, most = 0;
  for (int lane = 0; lane < 32; ++lane) ++words[(first + stride * lane) % 32];
  for (const int n : words) most = n > most ? n : most;
  return most;
}

int main() {
  constexpr int n = 96;
  constexpr size_t bytes = n * n * sizeof(float);
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) a[i] = i % 7 - 3, b[i] = i % 5 - 2;

  float *gpu_a, *gpu_b, *gpu_c;
  cudaMalloc(&gpu_a, bytes);
  cudaMalloc(&gpu_b, bytes);
  cudaMalloc(&gpu_c, bytes);
  cudaMemcpy(gpu_a, a.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b.data(), bytes, cudaMemcpyHostToDevice);
  matrix_product<<<dim3(n / tile, n / tile), dim3(tile, tile)>>>(gpu_a, gpu_b, gpu_c, n);
  const cudaError_t error = cudaMemcpy(c.data(), gpu_c, bytes, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  int wrong = 0;  // small integers: sums are exact
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[y * n + k] * b[k * n + x];
      wrong += !(c[y * n + x] == sum);
    }
  printf("matrix_product: %d of %d wrong; turns to store a column of a_tile: %d\n", wrong, n * n,
         turns(0, row));
  return wrong != 0;
}
