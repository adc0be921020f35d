// What the products and the convolutions by oneDNN share.
#pragma once
#include <cstddef>
#include <dnnl.hpp>
#include <stdexcept>
#include <string>

namespace bv {

inline void check_onednn(dnnl_status_t status, const char* what) {
  if (status != dnnl_success)
    throw std::runtime_error(std::string("oneDNN: ") + what + " failed with status " +
                             std::to_string(status));
}

struct OneDnnEngine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};

  dnnl::memory memory(const dnnl::memory::desc& shape) const {
    return {shape, engine, DNNL_MEMORY_NONE};
  }
  // By the C call: the C++ one would build a hash map in each run.
  template <size_t size>
  void run(const dnnl::primitive& primitive, const dnnl_exec_arg_t (&arguments)[size],
           const char* what, int count = size) {
    check_onednn(dnnl_primitive_execute(primitive.get(), stream.get(), count, arguments), what);
    stream.wait();
  }
};

// The scratchpad is the caller's.
inline dnnl::primitive_attr onednn_attributes(bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (accumulate) post.append_sum();
  attributes.set_post_ops(post);
  return attributes;
}

}  // namespace bv
