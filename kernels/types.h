// Types that the operations, the devices and the engine share.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv {

enum class DType : uint8_t { fp32, fp16, bf16 };
constexpr size_t size_of(DType t) { return t == DType::fp32 ? 4 : 2; }

using Stream =
    struct OpaqueStream*;  // a device's queue; what it points to is the backend's business

// What changes from step to step. It lives on the device; the host fills it before each micro-step,
// so that a captured graph needs no new arguments.
struct StepParams {
  uint64_t seed;      // key of every random number
  uint32_t epoch;     // with position, names the images of this micro-batch:
  uint32_t position;  // image b is at position + b of the epoch's order
  float lr;
  float grad_scale;  // 1 / (images of a full update, all processes), times the loss scale
  float divisor;     // of gradients: (images of this update) / (images of a full one)
  float count;       // images in this micro-batch of this process
  float stop;        // 1: this process was asked to stop; summed with the gradients
};

// State of the update that the device itself advances. Saved in checkpoints.
struct UpdateState {
  int32_t count;       // updates done (Adam's t); a skipped one is not counted
  int32_t found_inf;   // 1: the last gradient held an inf or NaN, and the update was skipped
  float grad_norm;     // global L2 norm of the last gradient, unscaled, before clipping
  float loss_scale;    // 1 unless fp16
  int32_t good_steps;  // since the scale last changed
  int32_t skipped;     // consecutive updates that were skipped
};

// Where an image's pixels come from: pixel (y, x) of the result is pixel (y + top, x + left) of the
// stored image, from the right if flip; black outside it.
struct Crop {
  int16_t top, left;
  int32_t flip;
};

}  // namespace bv
