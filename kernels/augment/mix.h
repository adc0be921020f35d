// The arithmetic of mixing two images (Mix, kernels/types.h), which all devices share: in integers,
// so that their results agree.
#pragma once
#include "kernels/philox.h"
#include "kernels/types.h"

namespace bv {
namespace {  // so that builds for different instruction sets share no code

BV_HOST_DEVICE inline bool has_box(const Mix& mix) {
  return mix.top < mix.bottom && mix.left < mix.right;
}

// A pixel's own weight, in 1/65536; the rest is its partner's.
BV_HOST_DEVICE inline int own_part(const Mix& mix, int y, int x) {
  if (!has_box(mix)) return static_cast<int>(mix.lambda * 65536 + 0.5f);
  return y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right ? 0 : 65536;
}

BV_HOST_DEVICE inline int mixed(int own, int partner, int part) {
  return (65536 * partner + part * (own - partner) + 32768) >> 16;
}

}  // namespace
}  // namespace bv
