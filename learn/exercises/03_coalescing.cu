// Exercise 3: coalescing. A warp doubles 1024 numbers in 32 requests; in a request, each of its 32
// threads (the lanes) touches one number. Memory moves in sectors of 32 bytes, 8 floats: the fewer
// sectors the 32 addresses of a request fall into, the better. Every number must be touched once;
// in which request, and by which lane, is up to you.
//   make learn EXERCISE=3
#include <set>

#include "learn/exercises/exercise.h"

constexpr int lanes = 32, requests = 32, n = lanes * requests;

// --- your code: 1 line ---
__host__ __device__ int element(int lane, int request) { return lane * requests + request; }
// --- end of your code ---

// x [n]
__global__ void twice(float* x) {
  for (int request = 0; request < requests; ++request) x[element(threadIdx.x, request)] *= 2;
}

int main() {
  std::vector<int> number(n, -1);  // of the access that touched each element; -1: none
  size_t most = 0;
  for (int request = 0; request < requests; ++request) {
    std::set<int> sectors;
    for (int lane = 0; lane < lanes; ++lane) {
      const int i = element(lane, request);
      const bool exists = i >= 0 && i < n;
      if (!exists || number[i] >= 0) {
        std::printf("lane %d touches x[%d] in request %d, ", lane, i, request);
        if (exists)
          std::printf("but lane %d has done so in request %d: each number only once\n",
                      number[i] % lanes, number[i] / lanes);
        else
          std::printf("but there are x[0] to x[%d]\n", n - 1);
        return 1;
      }
      number[i] = request * lanes + lane;
      sectors.insert(i * int(sizeof(float)) / 32);
    }
    most = std::max(most, sectors.size());
  }
  const std::vector<float> x = learn::numbers(n, 1);
  const learn::OnGpu<float> gpu_x(x);
  twice<<<1, lanes>>>(gpu_x.data);
  const std::vector<float> doubled = gpu_x.to_host();
  const size_t wrong = learn::first_wrong(doubled, 0, [&](size_t i) { return 2 * x[i]; });
  if (wrong < n)
    return std::printf("x[%zu] should be %g, is %g\n", wrong, 2 * x[wrong], doubled[wrong]), 1;

  std::printf("all %d numbers are right; a request touches %zu sectors of 32 bytes\n", n, most);
  if (most <= 4) return 0;
  std::printf("expected 4. In request 0, lane 0 touches x[%d] and lane 1 x[%d], %d bytes away:\n",
              element(0, 0), element(1, 0), std::abs(element(1, 0) - element(0, 0)) * 4);
  std::printf("%zu bytes move for the 128 that the warp uses\n", most * 32);
  return 1;
}
