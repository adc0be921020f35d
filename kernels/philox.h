// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a
// counter-based generator, so that a random number depends only on its use, never on when or by
// which thread it is drawn.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define BV_HOST_DEVICE __host__ __device__
#else
#define BV_HOST_DEVICE
#endif

namespace bv {

struct Philox4 {
  uint32_t at[4];
};

// Four random words for a 128-bit counter under a 64-bit key.
BV_HOST_DEVICE inline Philox4 philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                     uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1): the upper 24 bits.
BV_HOST_DEVICE inline float uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Uniform in 0 .. limit - 1.
BV_HOST_DEVICE inline int below(uint32_t word, int limit) {
  return static_cast<int>(uint64_t{word} * static_cast<uint32_t>(limit) >> 32);
}

// The uses of random streams: the last word of the counter, so that no two uses share numbers.
// Values below 2^16 are dropout layers.
enum RandomUse : uint32_t {
  random_init = 1u << 16,  // parameter initialisation
  random_order,            // an epoch's order of images
  random_augment,          // crop and flip
  random_split,            // train / validation
  random_data,             // drawn images and synthetic pixels
  random_replace,          // the image that stands in for a bad one
  random_mix,              // mixup and cutmix
};

}  // namespace bv
