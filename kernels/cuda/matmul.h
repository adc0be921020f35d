// Matrix products by cuBLASLt. A product is planned once per shape; its workspace is the caller's.
#pragma once
#include <cstddef>
#include <map>
#include <memory>

#include "kernels/cuda/check.h"
#include "kernels/types.h"

namespace bv::BAREVISION_GPU {

// c = a b (+ bias), or c += a b. All are row-major and contiguous.
struct Product {
  int M, N, K;        // c [M, N], a [M, K], b [K, N], bias [N]
  bool a_transposed;  // a is stored as [K, M]
  bool b_transposed;  // b is stored as [N, K]
  bool has_bias;
  DType dtype;    // of a, b, bias
  DType c_dtype;  // dtype, or fp32

  auto operator<=>(const Product&) const = default;
};

struct ProductArguments {
  void* c;
  void* workspace;  // [workspace_bytes], aligned to 256 bytes
  const void *a, *b;
  const void* bias;  // null without has_bias
  bool accumulate;   // +=
};

class Matmul {
 public:
  Matmul();
  ~Matmul();

  // Plans the product. Throws std::runtime_error if cuBLASLt has no algorithm for it.
  size_t workspace_bytes(const Product&);
  void run(const Product&, const ProductArguments&, cudaStream_t);

 private:
  struct Library;
  struct Plan;
  const Plan& plan(const Product&);

  std::unique_ptr<Library> library_;
  std::map<Product, std::unique_ptr<Plan>> plans_;
};

}  // namespace bv::BAREVISION_GPU
