// Dropout and drop path, forward and, on gradients, backward:
//   out = keep ? inp / (1 - drop) : 0
// Element e of image b belongs to decision i = e / group, kept where
// uniform(word i % 4 of philox(seed, i / 4, position + b, epoch, layer)) >= drop. Nothing is saved:
// backward draws the same numbers again. Where every element has its own decision, a vector of
// Philox counters gives those of four vectors of elements; else four neighbouring decisions share
// a scalar draw. Threads share out images and stretches of them.
// 8 bytes an element; 170 vector instructions draw for 64 elements: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"
#include "kernels/philox.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::vf;

constexpr int drawn = 4 * simd::width;  // decisions of one vector of counters

// Elements begin .. begin + n of image b, each with its own decision; begin % 4 == 0.
void drop_elements(const Dropout& op, int b, int begin, int n) {
  const size_t at = size_t(b) * op.shape.elements + begin;
  const float* inp = static_cast<const float*>(op.inp) + at;
  float* out = static_cast<float*>(op.out) + at;
  const float factor = 1.0f / (1.0f - op.drop);
  for (int done = 0; done < n; done += drawn) {
    simd::vu words[4];
    philox_words(op.params->seed, static_cast<uint32_t>(begin + done) / 4, op.params->position + b,
                 op.params->epoch, op.layer, words);
    for_each(n - done < drawn ? n - done : drawn, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + done + i) * factor;
      const vf kept = simd::select(uniform(words[i / simd::width]) >= op.drop, x, vf{});
      lanes.store(out + done + i, kept);
    });
  }
}

// The elements of four neighbouring decisions from `first` (a multiple of 4) on.
void drop_groups(const Dropout& op, int b, int first) {
  const Philox4 words = philox(op.params->seed, static_cast<uint32_t>(first) / 4,
                               op.params->position + b, op.params->epoch, op.layer);
  const float factor = 1.0f / (1.0f - op.drop);
  for (int k = 0; k < 4; ++k) {
    const int64_t begin = int64_t{first + k} * op.shape.group;
    if (begin >= op.shape.elements) return;
    const int64_t rest = op.shape.elements - begin;
    const int n = static_cast<int>(rest < op.shape.group ? rest : op.shape.group);
    const size_t at = size_t(b) * op.shape.elements + begin;
    const float* inp = static_cast<const float*>(op.inp) + at;
    float* out = static_cast<float*>(op.out) + at;
    if (bv::uniform(words.at[k]) >= op.drop)
      for_each(n, [&](int i, auto lanes) { lanes.store(out + i, lanes.load(inp + i) * factor); });
    else
      __builtin_memset(out, 0, sizeof(float) * n);
  }
}

}  // namespace

template <>
void CpuKernels::run(const Dropout& op) {
  if (op.shape.group == 1) {
    constexpr int block = 64 * drawn;
    const int blocks = (op.shape.elements - 1) / block + 1;
#pragma omp parallel for collapse(2) schedule(static)
    for (int b = 0; b < op.shape.B; ++b) {
      for (int k = 0; k < blocks; ++k) {
        const int begin = k * block, rest = op.shape.elements - begin;
        drop_elements(op, b, begin, rest < block ? rest : block);
      }
    }
  } else {
    const int draws = (op.shape.elements - 1) / op.shape.group / 4 + 1;
#pragma omp parallel for collapse(2) schedule(static)
    for (int b = 0; b < op.shape.B; ++b)
      for (int k = 0; k < draws; ++k) drop_groups(op, b, 4 * k);
  }
}

}  // namespace bv::BAREVISION_ISA
