// Chooses how a linear layer's weight gradient with dbias is computed in 16 bits, with N and K
// multiples of 8: in one pass of our kernel (weight_gradient.cuh), which reads dout once for both,
// or by cuBLASLt's product and a separate pass for the column sums. The first row of the table that
// includes the GPU's architecture sets the limit, in flops per byte.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/layers.h"

namespace bv::BAREVISION_GPU {

struct WeightGradientChoice {
  int first_arch, last_arch;  // compute capabilities: 75, 80, 90 ...
  double flops_a_byte;        // below this limit, one pass computes both; 0: never
  const char* source;
};

inline constexpr WeightGradientChoice weight_gradient_choices[] = {
    {90, 90, 0,
     "H100 80GB HBM3, CUDA 13.0, cuBLASLt 13.1, bf16: ViT-Tiny, batch 512: 25077 images/s by the "
     "library, 23237 in one pass; ViT-Large, batch 64: 1185 and 1199; [192, 192], [192, 768], "
     "[576, 192] at batch 256: 22, 45, 37 us and 41, 99, 87"},
    {75, 1 << 30, 200,
     "not measured; by data sheets, T4 and A100 compute about 200 flops per byte of memory "
     "bandwidth"},
};

constexpr const WeightGradientChoice& weight_gradient_choice(int arch) {
  return *std::ranges::find_if(weight_gradient_choices, [=](const WeightGradientChoice& c) {
    return c.first_arch <= arch && arch <= c.last_arch;
  });
}

// Below the limit a gradient is bound by memory, and another pass over dout for dbias would cost a
// third of its time (ViT-Tiny's gradients have 96 to 161 flops per byte, ViT-L's 170 and more).
// Above the limit, the library multiplies faster than mma.sync can.
constexpr bool in_one_pass(int arch, const LinearShape& s) {
  const double M = s.M, N = s.N, K = s.K;
  const double flops = 2 * M * N * K, bytes = 2 * (M * N + M * K) + 4 * N * K;
  return flops < weight_gradient_choice(arch).flops_a_byte * bytes;
}

// The table's row for the GPU, as a line of text.
inline std::string describe_weight_gradient_choice(int arch) {
  const WeightGradientChoice& choice = weight_gradient_choice(arch);
  const std::string limit = std::to_string(int(choice.flops_a_byte));
  return "weight gradients of linear layers: " +
         (choice.flops_a_byte > 0 ? "one pass with dbias below " + limit + " flops per byte, else "
                                  : std::string()) +
         "cuBLASLt, then dbias (" + choice.source + ")";
}

}  // namespace bv::BAREVISION_GPU
