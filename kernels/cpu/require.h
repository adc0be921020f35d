// Assertions, out of line so that the kernels stay free of strings and exceptions.
#pragma once

namespace bv {

// Unless ok: std::invalid_argument "op: what".
void require(bool ok, const char* op, const char* what);

}  // namespace bv
