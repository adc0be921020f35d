// The pickle in a file of torch.save: dictionaries of tensors, which refer to storages by key. What
// else a trainer saved (arguments, optimizers, schedulers) is read as inert objects.
#pragma once
#include <cstddef>

#include "base/python/pickle.h"
#include "engine/files/element_types.h"

namespace bv {

// A tensor's items are the storage, the offset in it, the sizes and the strides. A storage's items
// are the name of its type, its key and its number of elements.
extern const PickleKind torch_kind;
struct TensorItems {
  enum : size_t { storage, offset, sizes, strides };
};
struct StorageItems {
  enum : size_t { type, key, count };
};

// The element type that a storage's type name stands for, like FloatStorage. Types that can't be
// converted have no `read`; unknown ones have no size either.
const ElementType& element_type_of(const PickleValue& name);

}  // namespace bv
