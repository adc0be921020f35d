// Convolutions by oneDNN (API 2.x and 3.x). Activations are NHWC, weights KRSC, as everywhere here;
// oneDNN chooses its own layout of the weights, so each run reorders them. Primitives are cached.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/layers.h"

namespace bv {

struct OneDnnEngine;

struct Convolution {
  enum class Result : uint8_t { out, dinp, dweight };

  ConvShape shape;
  Result result;
  bool accumulate = false;    // dweight +=
  DType dtype = DType::fp32;  // or bf16; dweight is always fp32
  bool to_fp32 = false;       // dinp is fp32, whatever the dtype
};

// The three tensors of a convolution or their gradients. Convolution::result is the one that is
// written; the other two are read.
struct ConvTensors {
  void* inp;        // [N, H, W, C]
  void* weight;     // [K, R, S, C / groups]
  void* out;        // [N, P, Q, K]
  void* workspace;  // [workspace_bytes], aligned to 64 bytes
};

class ConvOneDnn {
 public:
  static std::unique_ptr<ConvOneDnn> make();
  ConvOneDnn();
  ~ConvOneDnn();

  size_t workspace_bytes(const Convolution&);
  void run(const Convolution&, const ConvTensors&);

 private:
  struct Plan;
  Plan& plan(const Convolution&);

  std::unique_ptr<OneDnnEngine> engine_;
  std::map<std::array<int, 14>, Plan> plans_;  // by the members of Convolution
};

}  // namespace bv
