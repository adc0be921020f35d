#include "kernels/cpu/matmul_onednn.h"

#include <algorithm>
#include <string_view>

#include "kernels/cpu/onednn.h"

namespace bv {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

dnnl::memory::desc matrix(int rows, int columns, Type type, Tag order = Tag::ab) {
  return {{rows, columns}, type, order};
}
Tag order_of(bool transposed) { return transposed ? Tag::ba : Tag::ab; }

Type factor_type(const Product& p) { return p.bf16 ? Type::bf16 : Type::f32; }
Type result_type(const Product& p) { return p.to_fp32 ? Type::f32 : factor_type(p); }

// In bf16, b is first reordered into oneDNN's layout, which costs 2% of the product and saves 20%.
bool reorders(const Product& p) { return p.bf16 && !p.to_fp32; }
dnnl::memory::desc plain_b(const Product& p) {
  return matrix(p.K, p.N, factor_type(p), order_of(p.b_transposed));
}

// The only code in this file that differs between oneDNN 2.x and 3.x.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const Product& p,
                                      const dnnl::primitive_attr& attributes) {
  const Type type = factor_type(p);
  const auto a = matrix(p.M, p.K, type, order_of(p.a_transposed)),
             b = reorders(p) ? matrix(p.K, p.N, type, Tag::any) : plain_b(p),
             c = matrix(p.M, p.N, result_type(p)),
             bias = p.has_bias ? matrix(1, p.N, type) : dnnl::memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  if (p.has_bias) return {engine, a, b, bias, c, attributes};
  return {engine, a, b, c, attributes};
#else
  const auto operation =
      p.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {operation, attributes, engine};
#endif
}

// Whether oneDNN would run its reference loops, which are thousands of times slower than its
// kernels.
bool is_reference(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos;
}

void run_sgemm(const Product& p, void* to, const void* of_a, const void* of_b,
               const void* of_bias) {
  float* c = static_cast<float*>(to);
  const auto *a = static_cast<const float*>(of_a), *b = static_cast<const float*>(of_b),
             *bias = static_cast<const float*>(of_bias);
  if (p.has_bias)
    for (int m = 0; m < p.M; ++m) std::copy_n(bias, p.N, c + ptrdiff_t(m) * p.N);
  const float beta = p.accumulate || p.has_bias ? 1.0f : 0.0f;
  check_onednn(dnnl_sgemm(p.a_transposed ? 'T' : 'N', 'N', p.M, p.N, p.K, 1.0f, a,
                          p.a_transposed ? p.M : p.K, b, p.N, beta, c, p.N),
               "sgemm");
}

}  // namespace

// A prepared product: the primitive and its arguments. Without a primitive, sgemm computes it.
// Without a reorder, b is used as it is.
struct MatmulOneDnn::Plan {
  dnnl::matmul primitive;
  OneDnnReorder reorder;
  dnnl::memory a, b, bias, c, scratch;
  size_t b_bytes = 0, scratch_bytes = 0;  // b_bytes: of the reordered b
};

std::unique_ptr<MatmulOneDnn> MatmulOneDnn::make() { return std::make_unique<MatmulOneDnn>(); }
MatmulOneDnn::MatmulOneDnn() : engine_(std::make_unique<OneDnnEngine>()) {}
MatmulOneDnn::~MatmulOneDnn() = default;

MatmulOneDnn::Plan& MatmulOneDnn::plan(const Product& p) {
  const auto [found, is_new] = plans_.try_emplace(p);
  Plan& plan = found->second;
  if (!is_new) return plan;
  const auto description = describe(engine_->engine, p, onednn_attributes(p.accumulate));
  if (!p.bf16 && is_reference(description)) return plan;
  plan.primitive = dnnl::matmul(description);
  plan.a = engine_->memory(description.src_desc());
  plan.b = engine_->memory(description.weights_desc());
  plan.c = engine_->memory(description.dst_desc());
  if (p.has_bias) plan.bias = engine_->memory(description.bias_desc());
  plan.scratch = engine_->memory(description.scratchpad_desc());
  plan.scratch_bytes = description.scratchpad_desc().get_size();
  if (!reorders(p) || description.weights_desc() == plain_b(p)) return plan;
  plan.reorder = OneDnnReorder(*engine_, plain_b(p), description.weights_desc(), false);
  plan.b_bytes = padded(description.weights_desc().get_size());
  plan.scratch_bytes = std::max(plan.scratch_bytes, plan.reorder.scratch_bytes());
  return plan;
}

size_t MatmulOneDnn::scratch_bytes(const Product& p) {
  const Plan& ready = plan(p);
  return ready.b_bytes + ready.scratch_bytes;
}

void MatmulOneDnn::run(const Product& p, void* c, void* scratch, const void* a, const void* b,
                       const void* bias) {
  Plan& ready = plan(p);
  if (!ready.primitive) return run_sgemm(p, c, a, b, bias);
  void *const plain_b = const_cast<void*>(b), *const rest =
                                                  static_cast<char*>(scratch) + ready.b_bytes;
  if (ready.reorder) ready.reorder.run(*engine_, plain_b, scratch, rest);
  ready.a.set_data_handle(const_cast<void*>(a));  // only read
  ready.b.set_data_handle(ready.reorder ? scratch : plain_b);
  ready.c.set_data_handle(c);
  ready.scratch.set_data_handle(rest);
  if (p.has_bias) ready.bias.set_data_handle(const_cast<void*>(bias));
  engine_->run(ready.primitive,
               {{DNNL_ARG_SRC, ready.a.get()},
                {DNNL_ARG_WEIGHTS, ready.b.get()},
                {DNNL_ARG_DST, ready.c.get()},
                {DNNL_ARG_SCRATCHPAD, ready.scratch.get()},
                {DNNL_ARG_BIAS, ready.bias.get(true)}},
               "a matrix product", p.has_bias ? 5 : 4);
}

}  // namespace bv
