// Types that the operations, the devices and the engine share.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv {

enum class DType : uint8_t { fp32, fp16, bf16 };
constexpr size_t size_of(DType t) { return t == DType::fp32 ? 4 : 2; }

// The kernels that a GPU runs; the CPU has one set.
enum class KernelSet : uint8_t {
  fast,
  cudnn,   // the same, but with cuDNN's convolutions (--conv cudnn)
  plain,   // for reading and comparison: a thread computes one output (--kernels plain)
  hopper,  // sm_90 kernels for the operations that they support, else fast (--kernels hopper)
};

using Stream =
    struct OpaqueStream*;  // a device's queue; only the backend knows what type this points to

// The parameters that change from step to step. They live on the device; the host fills them before
// each micro-step, so that a captured graph needs no new arguments.
struct StepParams {
  uint64_t seed;      // key of every random number
  uint32_t epoch;     // with position, identifies the images of this micro-batch:
  uint32_t position;  // image b is at position + b of the epoch's order
  float lr;
  float grad_scale;  // 1 / (images of a full update, all replicas), without the loss scale
  float divisor;     // divides the gradient: (images of this update) / (images of a full one)
  float count;       // images in this micro-batch of this process; 0 if it has no loss
  float stop;        // the host's requests, summed with the gradients: + 1 stop, + 1/2 save
};

// State of the optimizer, kept on the device: GradientNorm advances it before each update. Saved in
// checkpoints.
struct UpdateState {
  int32_t count;       // updates up to and including this one (Adam's t), without skipped ones
  int32_t found_inf;   // 1: the last gradient contained an inf or NaN; its update is skipped
  float grad_norm;     // global L2 norm of the last gradient, unscaled, before clipping
  float grad_divisor;  // the update divides the last gradient by it
  float loss_scale;    // of the next gradient: 1 unless fp16
  int32_t good_steps;  // since the scale last changed
  int32_t skipped;     // consecutive updates that were skipped
};

// Dynamic loss scaling (Micikevicius et al. 2018): after a skipped update the scale is multiplied
// by `backoff`, after growth_interval updates without one by `growth`. The defaults are PyTorch's
// GradScaler's.
struct LossScaling {
  float growth = 2, backoff = 0.5f;
  float smallest = 1, largest = 0x1p24f;
  int32_t growth_interval = 0;  // GradScaler's is 2000;  0: the scale stays as it is
};

enum class OptimizerKind : uint8_t { sgd, adam, adamw };

// Sizes of a convolution and of pooling (kernels.h).
struct ConvShape {
  int N, H, W, C;       // inp [N, H, W, C]
  int K, R, S;          // weight [K, R, S, C / groups]
  int stride, padding;  // the same in both directions
  int groups = 1;

  constexpr int P() const { return (H + 2 * padding - R) / stride + 1; }  // out [N, P, Q, K]
  constexpr int Q() const { return (W + 2 * padding - S) / stride + 1; }
  constexpr double inp_count() const { return double(N) * H * W * C; }
  constexpr double out_count() const { return double(N) * P() * Q() * K; }
  constexpr double weight_count() const { return double(K) * R * S * (C / groups); }
  constexpr double flops() const { return 2 * out_count() * R * S * (C / groups); }
};

struct PoolShape {
  int N, H, W, C;          // inp [N, H, W, C]
  int R, stride, padding;  // padding <= R / 2

  constexpr int P() const { return (H + 2 * padding - R) / stride + 1; }  // out [N, P, Q, C]
  constexpr int Q() const { return (W + 2 * padding - R) / stride + 1; }
  constexpr double inp_count() const { return double(N) * H * W * C; }
  constexpr double out_count() const { return double(N) * P() * Q() * C; }
};

// The origin of an image's pixels: pixel (y, x) of the result is pixel (y + top, x + left) of the
// stored image, x counted from the right if flip, y from below if upside_down; black outside it.
struct Crop {
  int16_t top, left;
  int16_t flip, upside_down;
};

// An operation on an 8-bit RGB training image, with the same results as Pillow. n = at[0], c is the
// value of a channel; each channel is processed separately unless stated:
//   affine        pixel (y, x) is the one at row (at[3] x + at[4] y + at[5]) >> 16 and column
//                 (at[0] x + at[1] y + at[2]) >> 16; `fill` outside
//   erase         `fill` in at[2] rows from at[0] on and at[3] columns from at[1] on
//   invert        255 - c
//   posterize     c & n
//   solarize      c < n ? c : 255 - c
//   solarize_add  c < 128 ? min(c + n, 255) : c
//   autocontrast  stretched so that the smallest and the largest value become 0 and 255
//   equalize      by the cumulative histogram
// and, with blend(from, to) = (65536 from + n (to - from) + 128) >> 16, cut off at 0 and 255:
//   brightness    blend(0, c)
//   contrast      blend(the image's mean grey, c)
//   color         blend(the pixel's grey, c): saturation
//   sharpness     blend(smooth, c), smooth = (sum of 3 x 3 pixels + 4 c) / 13, rounded; c itself at
//                 the image's border
//   hue           the hue of 0-255 plus n, modulo 256
enum class ImageOpKind : int32_t {
  identity,
  affine,
  erase,
  invert,
  posterize,
  solarize,
  solarize_add,
  brightness,
  contrast,
  autocontrast,
  equalize,
  color,
  sharpness,
  hue,
};
struct ImageOp {
  ImageOpKind kind;
  uint8_t fill[4];  // R, G, B
  int32_t at[6];
};

// The pixels that image b of a training batch takes from its partner, image b ^ 1 (mixup, Zhang et
// al. 2018; cutmix, Yun et al. 2019): those of the box or, if it is empty, a share of all. In both
// cases `lambda` is the image's own share of the target; an empty box with lambda 1 mixes nothing.
struct Mix {
  float lambda = 1;
  int16_t top = 0, left = 0, bottom = 0, right = 0;  // bottom and right: the first beyond the box
};

}  // namespace bv
