// Philox (kernels/philox.h) in vectors, which computes the words of 4 * width neighbouring
// decisions at once, and dropout by these decisions.
#pragma once
#include "kernels/cpu/simd.h"
#include "kernels/layers.h"
#include "kernels/philox.h"

namespace bv::BAREVISION_ISA {

// out[v][lane] = word i % 4 of philox(key, counter + i / 4, c1, c2, c3), i = v * width + lane.
static inline void philox_words(uint64_t key, uint32_t counter, uint32_t c1, uint32_t c2,
                                uint32_t c3, simd::vu out[4]) {
  using simd::vq;
  constexpr uint64_t quads = simd::width / 4;
  vq first;  // the counters of out[0] and out[1], in the order that the unpacking below needs
  for (int lane = 0; lane < simd::width / 2; ++lane) first[lane] = lane % 2 * quads + lane / 2;
  for (int half = 0; half < 2; ++half) {
    // One counter in each 64-bit lane; the upper half of a lane is garbage.
    vq x0 = first + (counter + half * 2 * quads), x1 = vq{} + c1, x2 = vq{} + c2, x3 = vq{} + c3;
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const vq p0 = simd::multiply(x0, vq{} + 0xD2511F53u);
      const vq p1 = simd::multiply(x2, vq{} + 0xCD9E8D57u);
      x0 = (p1 >> 32) ^ x1 ^ k0;
      x1 = p1;
      x2 = (p0 >> 32) ^ x3 ^ k1;
      x3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const vq low = (x0 & 0xffffffffu) | (x1 << 32), high = (x2 & 0xffffffffu) | (x3 << 32);
    out[2 * half] = reinterpret_cast<simd::vu>(simd::low_halves(low, high));
    out[2 * half + 1] = reinterpret_cast<simd::vu>(simd::high_halves(low, high));
  }
}

// uniform() of kernels/philox.h
static inline simd::vf uniform(simd::vu word) {
  return simd::to_float(reinterpret_cast<simd::vi>(word >> 8)) * 0x1p-24f;
}

// Dropout of one image's elements.
struct ImageDropout {
  const StepParams& params;
  int image;
  uint32_t layer;
  float drop;

  // Elements first .. first + n - 1 of the image. out may be inp.
  template <class T>
  void run(T* out, const T* inp, uint32_t first, int n) const {
    const float factor = 1.0f / (1.0f - drop);
    const uint32_t position = params.position + static_cast<uint32_t>(image);
    const auto choose = [&](int begin, int count, const simd::vf* draws) {
      simd::for_each(count, [&](int i, auto lanes) {
        const simd::vf x = lanes.load(inp + begin + i) * factor;
        lanes.store(out + begin + i, simd::select(draws[i / simd::width] >= drop, x, simd::vf{}));
      });
    };
    int done = 0;
    if (const int used = static_cast<int>(first % 4); used > 0) {  // the rest of a group of four
      const Philox4 words = philox(params.seed, first / 4, position, params.epoch, layer);
      simd::vf draws{};
      for (int k = used; k < 4; ++k) draws[k - used] = bv::uniform(words.at[k]);
      done = n < 4 - used ? n : 4 - used;
      choose(0, done, &draws);
    }
    constexpr int drawn = 4 * simd::width;  // decisions per call of philox_words
    for (; done < n; done += drawn) {
      simd::vu words[4];
      philox_words(params.seed, (first + static_cast<uint32_t>(done)) / 4, position, params.epoch,
                   layer, words);
      const simd::vf draws[4] = {uniform(words[0]), uniform(words[1]), uniform(words[2]),
                                 uniform(words[3])};
      choose(done, n - done < drawn ? n - done : drawn, draws);
    }
  }
};

// Drops elements of a row of C, for operations with a Drop.
template <class T>
static inline void drop_row(const Drop& d, const StepParams* params, int row, int C, T* out,
                            const T* inp) {
  const int image = row / d.image_rows;
  const auto first = static_cast<uint32_t>(row - image * d.image_rows) * static_cast<uint32_t>(C);
  ImageDropout{*params, image, d.layer, d.drop}.run(out, inp, first, C);
}

}  // namespace bv::BAREVISION_ISA
