// Draws which training images are mixed, and how, as in timm's Mixup. Every draw is a function of
// (seed, epoch, position in the epoch's order), independent of the process. The partner of position
// p is p ^ 1; both are in the same process's batch, since its size is even.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/types.h"

namespace bv {

enum class MixMode : uint8_t { batch, pair, elem };  // which images share lambda and box

struct Mixing {
  double mixup = 0, cutmix = 0;  // the alpha of lambda's Beta(alpha, alpha); 0: off
  // Range of a cutmix box's sides, as fractions of the image's side; {}: area 1 - lambda.
  std::array<double, 2> minmax{};
  double prob = 1, switch_prob = 0.5;  // of mixing; of cutmix instead of mixup, if both are on
  MixMode mode = MixMode::batch;
  int off_epoch = 0;  // mixing ends after this many epochs; 0: never

  bool any() const { return mixup > 0 || cutmix > 0; }
};

struct MixKey {
  uint64_t seed;
  uint32_t epoch, position;  // from 0
  int batch;                 // images per forward pass over all processes
};

// For images of size x size.
Mix draw_mix(const Mixing&, const MixKey&, int size);

// out = the image mixed with its partner, all [size, size, 3]: the pixels that the model sees.
void mix_pictures(uint8_t* out, const uint8_t* image, const uint8_t* partner, const Mix&, int size);

}  // namespace bv
