// Pickles of plain values and numpy's arrays of uint8, as CIFAR for Python has them.
#pragma once
#include <cstdint>
#include <string>

#include "base/python/pickle.h"

namespace bv {

// A file of at most `limit` bytes. Throws DataError, which begins with its path.
Pickle read_numpy_pickle(const std::string& path, uint64_t limit);

}  // namespace bv
