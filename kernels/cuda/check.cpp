#include "kernels/cuda/check.h"

#include <stdexcept>
#include <string>

#include "kernels/cuda/endless_wait.h"

namespace bv::BAREVISION_GPU {

std::string name_in(std::string_view function) {
  function.remove_prefix(function.find("kernel = ") + 9);
  function = function.substr(0, function.find_first_of(";]"));
  const size_t scopes = function.rfind("::", function.find('<'));
  return std::string(scopes == function.npos ? function : function.substr(scopes + 2));
}

void fail(cudaError_t error, const char* what) {
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error) +
                           (endless_wait ? endless_wait() : ""));
}

void fail_kernel(cudaError_t error, const char* function) {
  fail(error, name_in(function).c_str());
}

void refuse(const char* op, const char* what) {
  throw std::invalid_argument(std::string(op) + ": " + what);
}

}  // namespace bv::BAREVISION_GPU
