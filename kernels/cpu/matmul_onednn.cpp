#include "kernels/cpu/matmul_onednn.h"

#include <algorithm>
#include <string_view>

#include "kernels/cpu/onednn.h"

namespace bv {
namespace {

using Tag = dnnl::memory::format_tag;

dnnl::memory::desc matrix(int rows, int columns, bool transposed = false) {
  return {{rows, columns}, dnnl::memory::data_type::f32, transposed ? Tag::ba : Tag::ab};
}

// All that differs between oneDNN 2.x and 3.x.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const Product& p,
                                      const dnnl::primitive_attr& attributes) {
  const auto a = matrix(p.M, p.K, p.a_transposed), b = matrix(p.K, p.N), c = matrix(p.M, p.N),
             bias = p.has_bias ? matrix(1, p.N) : dnnl::memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  if (p.has_bias) return {engine, a, b, bias, c, attributes};
  return {engine, a, b, c, attributes};
#else
  const auto operation =
      p.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {operation, attributes, engine};
#endif
}

// oneDNN's slow reference loops take thousands of times as long as its kernels.
bool is_reference(const dnnl::matmul::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos;
}

void run_sgemm(const Product& p, float* c, const float* a, const float* b, const float* bias) {
  if (p.has_bias)
    for (int m = 0; m < p.M; ++m) std::copy_n(bias, p.N, c + ptrdiff_t(m) * p.N);
  const float beta = p.accumulate || p.has_bias ? 1.0f : 0.0f;
  check_onednn(dnnl_sgemm(p.a_transposed ? 'T' : 'N', 'N', p.M, p.N, p.K, 1.0f, a,
                          p.a_transposed ? p.M : p.K, b, p.N, beta, c, p.N),
               "sgemm");
}

}  // namespace

// A prepared product: the primitive and its arguments. Without a primitive: by sgemm.
struct MatmulOneDnn::Plan {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c, scratch;
  size_t scratch_bytes = 0;
};

std::unique_ptr<MatmulOneDnn> MatmulOneDnn::make() { return std::make_unique<MatmulOneDnn>(); }
MatmulOneDnn::MatmulOneDnn() : engine_(std::make_unique<OneDnnEngine>()) {}
MatmulOneDnn::~MatmulOneDnn() = default;

MatmulOneDnn::Plan& MatmulOneDnn::plan(const Product& p) {
  const auto [found, is_new] = plans_.try_emplace(p);
  Plan& plan = found->second;
  if (!is_new) return plan;
  const auto description = describe(engine_->engine, p, onednn_attributes(p.accumulate));
  if (is_reference(description)) return plan;
  plan.primitive = dnnl::matmul(description);
  plan.a = engine_->memory(description.src_desc());
  plan.b = engine_->memory(description.weights_desc());
  plan.c = engine_->memory(description.dst_desc());
  if (p.has_bias) plan.bias = engine_->memory(description.bias_desc());
  plan.scratch = engine_->memory(description.scratchpad_desc());
  plan.scratch_bytes = description.scratchpad_desc().get_size();
  return plan;
}

size_t MatmulOneDnn::scratch_bytes(const Product& p) { return plan(p).scratch_bytes; }

void MatmulOneDnn::run(const Product& p, float* c, void* scratch, const float* a, const float* b,
                       const float* bias) {
  Plan& ready = plan(p);
  if (!ready.primitive) return run_sgemm(p, c, a, b, bias);
  ready.a.set_data_handle(const_cast<float*>(a));  // only read
  ready.b.set_data_handle(const_cast<float*>(b));
  ready.c.set_data_handle(c);
  ready.scratch.set_data_handle(scratch);
  if (p.has_bias) ready.bias.set_data_handle(const_cast<float*>(bias));
  engine_->run(ready.primitive,
               {{DNNL_ARG_SRC, ready.a.get()},
                {DNNL_ARG_WEIGHTS, ready.b.get()},
                {DNNL_ARG_DST, ready.c.get()},
                {DNNL_ARG_SCRATCHPAD, ready.scratch.get()},
                {DNNL_ARG_BIAS, ready.bias.get(true)}},
               "a matrix product", p.has_bias ? 5 : 4);
}

}  // namespace bv
