#include "kernels/cpu/require.h"

#include <stdexcept>
#include <string>

namespace bv {

void require(bool ok, const char* op, const char* what) {
  if (!ok) throw std::invalid_argument(std::string(op) + ": " + what);
}

}  // namespace bv
