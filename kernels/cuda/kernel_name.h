// "layernorm_forward<float, 8>", without its namespaces: a kernel's name in messages.
#pragma once
#include <string>
#include <string_view>

namespace bv::BAREVISION_GPU {

// Finds the kernel in the __PRETTY_FUNCTION__ of a template with the parameter `kernel`.
std::string name_in(std::string_view function);

template <auto kernel>
std::string kernel_name() {
  return name_in(__PRETTY_FUNCTION__);
}

}  // namespace bv::BAREVISION_GPU
