// Owns a handle of CUDA or of one of its libraries.
#pragma once

namespace bv {

template <class Handle, auto destroy>
struct Owner {
  Handle handle = nullptr;
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (handle) destroy(handle);
  }
  explicit operator bool() const { return handle; }
  auto& operator*() const { return *handle; }
  Handle operator->() const { return handle; }
};

}  // namespace bv
