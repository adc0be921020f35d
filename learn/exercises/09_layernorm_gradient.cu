// Exercise 9: the gradient of a layer norm. With xhat = (inp - mean) rstd, out = weight xhat and
// g = dout weight, each input also changes its row's mean and rstd. So its gradient has 3 terms:
//   dinp = rstd (g - mean over the row of g - xhat * mean over the row of g xhat)
// The code below has only the first. The check uses finite differences: it changes each number of
// inp a little and computes the loss, the sum of dout out, again in double.
//   make learn EXERCISE=9
#include "learn/exercises/exercise.h"

constexpr int lanes = 32, C = 64, per_lane = C / lanes, rows = 4;
constexpr float eps = 1e-6f;

__device__ float warp_sum(float x) {
  for (int bit = lanes / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// dinp, dout, inp [rows, C]; weight [C]: one warp per row
__global__ void backward(float* dinp, const float* dout, const float* inp, const float* weight) {
  const int lane = threadIdx.x, first = blockIdx.x * C + lane;
  float xhat[per_lane], g[per_lane], sum = 0, squares = 0;
  for (int i = 0; i < per_lane; ++i) sum += xhat[i] = inp[first + i * lanes];
  const float mean = warp_sum(sum) / C;
  for (int i = 0; i < per_lane; ++i) squares += (xhat[i] - mean) * (xhat[i] - mean);
  const float rstd = rsqrtf(warp_sum(squares) / C + eps);
  for (int i = 0; i < per_lane; ++i) {
    xhat[i] = (xhat[i] - mean) * rstd;
    g[i] = dout[first + i * lanes] * weight[lane + i * lanes];
  }
  // --- your code: 6 lines ---
  for (int i = 0; i < per_lane; ++i) dinp[first + i * lanes] = rstd * g[i];
  // --- end of your code ---
}

int main() {
  std::vector<float> inp = learn::numbers(rows * C, 1);
  const std::vector<float> dout = learn::numbers(rows * C, 2), weight = learn::numbers(C, 3);
  const learn::OnGpu<float> gpu_inp(inp), gpu_dout(dout), gpu_weight(weight), gpu_dinp(rows * C);
  backward<<<rows, lanes>>>(gpu_dinp.data, gpu_dout.data, gpu_inp.data, gpu_weight.data);
  const std::vector<float> dinp = gpu_dinp.to_host();

  // The loss of inp[i]'s row, with `moved` added to inp[i].
  const auto loss = [&](size_t i, double moved) {
    const size_t first = i / C * C;
    std::vector<double> x(&inp[first], &inp[first] + C);
    x[i - first] += moved;
    double mean = 0, variance = 0, sum = 0;
    for (const double v : x) mean += v / C;
    for (const double v : x) variance += (v - mean) * (v - mean) / C;
    for (int c = 0; c < C; ++c)
      sum += dout[first + c] * weight[c] * (x[c] - mean) / std::sqrt(variance + double(eps));
    return sum;
  };
  const auto slope = [&](size_t i) { return (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4; };
  const size_t wrong = learn::first_wrong(dinp, 1e-4, slope);
  if (wrong == dinp.size())
    return std::printf("all %zu gradients agree with finite differences\n", dinp.size()), 0;
  std::printf("dinp[%zu] is %.5f, but the loss changes by %.5f per unit of inp[%zu]\n", wrong,
              dinp[wrong], slope(wrong), wrong);
  double sum = 0;
  for (int c = 0; c < C; ++c) sum += dinp[c];
  if (!(std::fabs(sum) < 1e-3))
    std::printf(
        "the gradients of row 0 sum to %.3f, not to 0: but adding the same to all\n"
        "of a row changes nothing, since the mean changes by the same amount\n",
        sum);
  else
    std::printf(
        "the gradients of row 0 sum to 0, as they should: the mean's term is right.\n"
        "Is that of rstd?\n");
  return 1;
}
