// The width of what is printed for people to read.
#pragma once
#include <cstddef>

namespace bv {

// Columns of help and tables: those of the terminal that standard output is, else COLUMNS, else
// 80; at least 44, at most 100.
size_t text_width();

}  // namespace bv
