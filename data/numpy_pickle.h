// Pickles of plain values and NumPy arrays of uint8, as in CIFAR for Python.
#pragma once
#include <cstdint>
#include <string>

#include "base/python/pickle.h"

namespace bv {

// Reads a file of at most `limit` bytes. Throws DataError, whose text begins with the path.
Pickle read_numpy_pickle(const std::string& path, uint64_t limit);

}  // namespace bv
