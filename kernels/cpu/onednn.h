// Shared by oneDNN's matrix products and convolutions.
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
  // Calls the C function: the C++ one would build a hash map in each run.
  template <size_t size>
  void run(const dnnl::primitive& primitive, const dnnl_exec_arg_t (&arguments)[size],
           const char* what, int count = size) {
    check_onednn(dnnl_primitive_execute(primitive.get(), stream.get(), count, arguments), what);
    stream.wait();
  }
};

inline size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The caller provides the scratchpad.
inline dnnl::primitive_attr onednn_attributes(bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (accumulate) post.append_sum();
  attributes.set_post_ops(post);
  return attributes;
}

// Copies a tensor to another memory layout. A default-constructed object reorders nothing.
class OneDnnReorder {
 public:
  OneDnnReorder() = default;
  OneDnnReorder(const OneDnnEngine& engine, const dnnl::memory::desc& from,
                const dnnl::memory::desc& to, bool accumulate)
      : from_(engine.memory(from)), to_(engine.memory(to)) {
    const dnnl::reorder::primitive_desc description(engine.engine, from, engine.engine, to,
                                                    onednn_attributes(accumulate));
    primitive_ = dnnl::reorder(description);
    scratch_ = engine.memory(description.scratchpad_desc());
    scratch_bytes_ = description.scratchpad_desc().get_size();
  }
  explicit operator bool() const { return bool(primitive_); }
  size_t scratch_bytes() const { return scratch_bytes_; }
  void run(OneDnnEngine& engine, void* from, void* to, void* scratch) {
    from_.set_data_handle(from);
    to_.set_data_handle(to);
    scratch_.set_data_handle(scratch);
    engine.run(primitive_,
               {{DNNL_ARG_FROM, from_.get()},
                {DNNL_ARG_TO, to_.get()},
                {DNNL_ARG_SCRATCHPAD, scratch_.get()}},
               "a reorder");
  }

 private:
  dnnl::reorder primitive_;
  dnnl::memory from_, to_, scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace bv
