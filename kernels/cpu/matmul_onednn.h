// Matrix products by oneDNN (API 2.x and 3.x). Primitives are cached, one for each product.
#pragma once
#include <cstddef>
#include <map>
#include <memory>

namespace bv {

struct OneDnnEngine;

// c = a b (+ bias), or c += a b. All matrices are row-major. In fp32, b must not be transposed:
// this is the case that is fast in every version of oneDNN.
struct Product {
  int M, N, K;        // c [M, N], a [M, K], b [K, N], bias [N]
  bool a_transposed;  // a is stored as [K, M]
  bool b_transposed;  // b is stored as [N, K]; bf16 only
  bool has_bias, accumulate;
  bool bf16;     // a, b, bias and c are bf16, otherwise fp32
  bool to_fp32;  // c is fp32 in any case

  auto operator<=>(const Product&) const = default;
};

class MatmulOneDnn {
 public:
  static std::unique_ptr<MatmulOneDnn> make();
  MatmulOneDnn();
  ~MatmulOneDnn();

  size_t scratch_bytes(const Product&);
  // scratch [scratch_bytes], aligned to 64 bytes; bias: null without has_bias.
  void run(const Product&, void* c, void* scratch, const void* a, const void* b, const void* bias);

 private:
  struct Plan;
  Plan& plan(const Product&);

  std::unique_ptr<OneDnnEngine> engine_;
  std::map<Product, Plan> plans_;
};

}  // namespace bv
