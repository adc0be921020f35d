// Exercise 12: a step in 16 bits. fp16 has no numbers beyond 65504 and rounds numbers below 3e-8,
// which gradients often are, to 0. So the loss is multiplied by a scale, and the update divides by
// it. The scale should be as large as possible: if a gradient overflows, the step is skipped and
// the scale halved; after `interval` good steps in a row it is doubled. The GPU decides this, so
// that the host never waits. The code below skips, but never changes the scale: it skips forever.
//   make learn EXERCISE=12
#include <cuda_fp16.h>

#include "learn/exercises/exercise.h"

constexpr int interval = 4, steps = 16;

struct State {
  float weight, scale;
  int good_steps;
};

// Sets the scale of the next step; overflow: whether this step's gradient overflowed.
__device__ void next_scale(State& state, bool overflow) {
  // --- your code: 5 lines ---
  if (!overflow) ++state.good_steps;
  // --- end of your code ---
}

// One weight, whose gradient is 1; scales [steps]: the scale of each step
__global__ void step(State* state, float* scales, int number) {
  scales[number] = state->scale;
  const float grad = __half2float(__float2half(1.f * state->scale));  // as backward stores it
  const bool overflow = !isfinite(grad);
  if (!overflow) state->weight -= 0.125f * grad / state->scale;
  next_scale(*state, overflow);
}

int main() {
  const learn::OnGpu<State> gpu_state({{.weight = 0, .scale = 262144, .good_steps = 0}});
  const learn::OnGpu<float> gpu_scales(steps);
  for (int i = 0; i < steps; ++i) step<<<1, 1>>>(gpu_state.data, gpu_scales.data, i);
  const std::vector<float> scales = gpu_scales.to_host();
  const State end = gpu_state.to_host()[0];

  // 65536 is the smallest power of two that is too large for fp16.
  const float expected[steps] = {262144, 131072, 65536, 32768, 32768, 32768, 32768, 65536,
                                 32768,  32768,  32768, 32768, 65536, 32768, 32768, 32768};
  const size_t wrong = learn::first_wrong(scales, 0, [&](size_t i) { return expected[i]; });
  std::printf("scales:");
  for (const float scale : scales) std::printf(" %g", scale);
  std::printf("\n");
  if (wrong == steps) {
    std::printf("5 of 16 steps were skipped; the weight is %g\n", end.weight);
    return end.weight != -0.125f * 11;
  }
  std::printf("step %zu should have scale %g, has %g: ", wrong, expected[wrong], scales[wrong]);
  if (scales[wrong - 1] > 65504)
    std::printf("the gradient overflowed in step %zu\n", wrong - 1);
  else
    std::printf("the steps before it went well, in a row of %d or less?\n", interval);
  return 1;
}
