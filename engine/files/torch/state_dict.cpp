#include "engine/files/torch/state_dict.h"

#include <map>
#include <utility>

#include "base/files/file.h"
#include "base/text.h"
#include "engine/files/torch/dictionaries.h"

namespace bv {
namespace {

constexpr size_t max_dimensions = 16;
// All tensors that share a storage have at most about this many times its elements: without a limit
// a small file could take all memory.
constexpr uint64_t max_shares = 4;

class StateDict {
 public:
  StateDict(const Pickle& pickle, const ReadBytes& read, const FindStorage& find)
      : pickle_(pickle), read_(read), find_(find) {}

  TensorFile read(const TensorChoice& choice) {
    ChosenDictionary chosen = choose_dictionary(pickle_, choice.key, choice.model);
    TensorFile file{.taken = chosen.taken.key(),
                    .also = std::move(chosen.also),
                    .found = std::move(chosen.found)};
    const PickleValue& weights = *chosen.taken.value;
    for (size_t i = 0; i + 1 < weights.items.size(); i += 2)
      if (stands_for_tensor(pickle_.item(weights, i + 1)))
        add(file, pickle_.item(weights, i), pickle_.item(weights, i + 1));
    return file;
  }

 private:
  using Kind = PickleValue::Kind;

  struct Storage {
    const ElementType* type = nullptr;
    uint64_t begin = 0, elements = 0, used = 0;
  };
  struct Axis {
    uint64_t size, stride;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError("tensor '" + name_ + "' " + why);
  }
  uint64_t size_of(const PickleValue& value, const char* what = "size") const {
    if (value.kind != Kind::integer) refuse(std::string("has an invalid ") + what);
    if (value.number < 0)
      refuse(std::string("has the ") + what + " " + std::to_string(value.number));
    return static_cast<uint64_t>(value.number);
  }

  Storage& storage_of(const PickleValue& value) {
    const std::string key(pickle_.item(value, StorageItems::key).bytes);
    const ElementType& type = element_type_of(pickle_.item(value, StorageItems::type));
    if (!type.read) refuse("has elements of the type " + std::string(type.name));
    const uint64_t elements = size_of(pickle_.item(value, StorageItems::count), "storage size");
    Storage& storage = storages_[key];
    if (!storage.type) {
      const auto place = find_(key);
      if (!place) refuse("needs storage " + key + ", which the file lacks");
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(elements, type.bytes, &bytes) || bytes != place->bytes)
        refuse("needs " + std::to_string(elements) + " elements of " + std::to_string(type.bytes) +
               " bytes in storage " + key + ", which has " + std::to_string(place->bytes) +
               " bytes");
      storage = {.type = &type, .begin = place->begin, .elements = elements};
    }
    if (storage.type != &type || storage.elements != elements)
      refuse("has a storage that is described twice, differently");
    return storage;
  }

  std::vector<Axis> axes_of(const PickleValue& tensor) const {
    const PickleValue &sizes = pickle_.item(tensor, TensorItems::sizes),
                      &strides = pickle_.item(tensor, TensorItems::strides);
    if (sizes.items.size() != strides.items.size() || sizes.items.size() > max_dimensions)
      refuse("has " + counted(int64_t(sizes.items.size()), "dimension") + " and " +
             counted(int64_t(strides.items.size()), "stride"));
    std::vector<Axis> axes;
    for (size_t i = 0; i < sizes.items.size(); ++i)
      axes.push_back(
          {size_of(pickle_.item(sizes, i)), size_of(pickle_.item(strides, i), "stride")});
    return axes;
  }

  // Returns the number of elements; checks that all of them lie in the storage.
  uint64_t elements_of(const std::vector<Axis>& axes, uint64_t offset,
                       const Storage& storage) const {
    uint64_t count = 1, last = offset;
    bool overflow = false;
    for (const auto& [size, stride] : axes) overflow |= __builtin_mul_overflow(count, size, &count);
    for (const auto& [size, stride] : axes) {
      uint64_t way = 0;
      overflow |= size > 0 && __builtin_mul_overflow(size - 1, stride, &way);
      overflow |= __builtin_add_overflow(last, way, &last);
    }
    if (overflow || (count > 0 && last >= storage.elements))
      refuse("reaches beyond its storage of " + std::to_string(storage.elements) + " elements");
    if (count > storage.elements)
      refuse("has " + std::to_string(count) + " elements, its storage " +
             std::to_string(storage.elements));
    return count;
  }

  void add(TensorFile& file, const PickleValue& key, const PickleValue& tensor) {
    if (key.kind != Kind::text) throw FileError("a tensor whose name is not text");
    name_ = printable(key.bytes);
    if (tensor.kind == Kind::object)
      refuse("is made by " + pickle_.name_of_object(tensor) + ", which can't be read; " +
             torch_kind.advice);
    Storage& storage = storage_of(pickle_.item(tensor, TensorItems::storage));
    const uint64_t offset = size_of(pickle_.item(tensor, TensorItems::offset), "offset");
    const std::vector<Axis> axes = axes_of(tensor);
    const uint64_t count = elements_of(axes, offset, storage);
    storage.used += count;
    if (storage.used / max_shares > storage.elements)
      refuse("shares its storage with too many others");
    const auto [at, fresh] = file.tensors.try_emplace(std::string(key.bytes));
    if (!fresh) refuse("occurs twice");
    HostTensor& out = at->second;
    for (const Axis& axis : axes) out.shape.push_back(static_cast<int64_t>(axis.size));
    out.integers = holds_integers(*storage.type);
    out.data.resize(count);
    if (count > 0) read_elements(axes, storage, offset, out.data);
  }

  void read_elements(const std::vector<Axis>& axes, const Storage& storage, uint64_t offset,
                     std::span<float> out) const {
    const auto read = [&](uint64_t from, std::span<float> to) {
      storage.type->read(read_, storage.begin + from * storage.type->bytes, to);
    };
    uint64_t expected = 1;
    bool in_order = true;
    for (size_t i = axes.size(); i-- > 0; expected *= axes[i].size)
      in_order &= axes[i].size == 1 || axes[i].stride == expected;
    if (in_order) return read(offset, out);
    std::vector<float> all(storage.elements);
    read(0, all);
    std::vector<uint64_t> index(axes.size());
    for (float& x : out) {
      x = all[offset];
      for (size_t i = axes.size(); i-- > 0;) {  // counts up, the last index fastest
        offset += axes[i].stride;
        if (++index[i] < axes[i].size) break;
        offset -= axes[i].size * axes[i].stride;
        index[i] = 0;
      }
    }
  }

  const Pickle& pickle_;
  const ReadBytes& read_;
  const FindStorage& find_;
  std::map<std::string, Storage> storages_;  // by key
  std::string name_;                         // of the tensor being read, printable
};

}  // namespace

TensorFile read_state_dict(const Pickle& pickle, const ReadBytes& read, const FindStorage& find,
                           const TensorChoice& choice) {
  return StateDict(pickle, read, find).read(choice);
}

}  // namespace bv
