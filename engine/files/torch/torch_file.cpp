#include "engine/files/torch/torch_file.h"

#include <array>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/files/torch/torch_pickle.h"
#include "engine/files/torch/zip_archive.h"

namespace bv {
namespace {

constexpr uint64_t max_pickle_bytes = 64 << 20;
constexpr size_t max_dimensions = 16;
// Tensors may share a storage; more than this would be a file that takes far more memory than disk.
constexpr uint64_t max_shares = 4;

class TorchFile {
 public:
  TorchFile(const ReadBytes& read, uint64_t bytes)
      : archive_(read, bytes),
        prefix_(find_prefix()),
        pickle_(archive_.contents(prefix_ + "data.pkl", max_pickle_bytes), torch_kind) {
    const std::string order = prefix_ + "byteorder";
    if (archive_.find(order)) {
      const std::vector<uint8_t> word = archive_.contents(order, 16);
      if (std::string(word.begin(), word.end()) != "little")
        throw FileError("its numbers are big-endian; save it again on another machine");
    }
  }

  TensorFile read() {
    const PickleValue* weights = &pickle_.root();
    for (const char* name : {"state_dict", "model"})
      if (const PickleValue* inner = pickle_.member(name); inner && inner->kind == Kind::dict) {
        weights = inner;
        break;
      }
    TensorFile file;
    if (weights->kind == Kind::dict)
      for (size_t i = 0; i + 1 < weights->items.size(); i += 2)
        if (pickle_.item(*weights, i + 1).kind == Kind::tensor)
          add(file, pickle_.item(*weights, i), pickle_.item(*weights, i + 1));
    if (file.tensors.empty()) throw FileError("no state dict: it has no tensors by name");
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

  // "NAME/" of NAME/data.pkl
  std::string find_prefix() const {
    const std::string pickle = "data.pkl";
    for (const auto& [name, member] : archive_.members())
      if (name.find('/') == name.size() - pickle.size() - 1 && name.ends_with("/" + pickle))
        return name.substr(0, name.size() - pickle.size());
    throw FileError("a zip archive without a data.pkl, not one of torch.save's");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError("tensor '" + name_ + "' " + why);
  }
  uint64_t size_of(const PickleValue& value) const {
    if (value.kind != Kind::integer || value.number < 0) refuse("has a size that is none");
    return static_cast<uint64_t>(value.number);
  }

  Storage& storage_of(const PickleValue& value) {
    const std::string key(pickle_.item(value, StorageItems::key).bytes);
    const ElementType& type = element_type_of(pickle_.item(value, StorageItems::type));
    const uint64_t elements = size_of(pickle_.item(value, StorageItems::count));
    Storage& storage = storages_[key];
    if (!storage.type) {
      const std::string name = prefix_ + "data/" + key;
      const ZipMember* const member = archive_.find(name);
      if (!member) refuse("needs '" + printable(name) + "', which the archive lacks");
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(elements, type.bytes, &bytes) || bytes != member->bytes)
        refuse("needs " + std::to_string(elements) + " elements of " + std::to_string(type.bytes) +
               " bytes in '" + printable(name) + "', which has " + std::to_string(member->bytes) +
               " bytes");
      archive_.check(name);
      storage = {.type = &type, .begin = member->begin, .elements = elements};
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
      axes.push_back({size_of(pickle_.item(sizes, i)), size_of(pickle_.item(strides, i))});
    return axes;
  }

  // Their number; checks that all are in the storage.
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
    if (key.kind != Kind::text) throw FileError("a tensor whose name is no text");
    name_ = printable(key.bytes);
    Storage& storage = storage_of(pickle_.item(tensor, TensorItems::storage));
    const uint64_t offset = size_of(pickle_.item(tensor, TensorItems::offset));
    const std::vector<Axis> axes = axes_of(tensor);
    const uint64_t count = elements_of(axes, offset, storage);
    storage.used += count;
    if (storage.used / max_shares > storage.elements)
      refuse("shares its storage with too many others");
    const auto [at, fresh] = file.tensors.try_emplace(std::string(key.bytes));
    if (!fresh) refuse("is there twice");
    HostTensor& out = at->second;
    for (const Axis& axis : axes) out.shape.push_back(static_cast<int64_t>(axis.size));
    out.data.resize(count);
    if (count > 0) read_elements(axes, storage, offset, out.data);
  }

  void read_elements(const std::vector<Axis>& axes, const Storage& storage, uint64_t offset,
                     std::span<float> out) const {
    const auto read = [&](uint64_t from, std::span<float> to) {
      storage.type->read(archive_.read(), storage.begin + from * storage.type->bytes, to);
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

  ZipArchive archive_;
  std::string prefix_;
  Pickle pickle_;
  std::map<std::string, Storage> storages_;  // by key
  std::string name_;                         // of the tensor being read, printable
};

bool is_zip(std::span<const std::byte, 4> first) {
  return std::memcmp(first.data(), "PK\3\4", first.size()) == 0;
}

TensorFile read_from(const ReadBytes& read, uint64_t bytes, const std::string& path) try {
  return TorchFile(read, bytes).read();
} catch (const FileError& e) {
  throw UserError(path + ": " + e.what());
}

}  // namespace

TensorFile parse_torch_file(std::span<const std::byte> file, const std::string& path) {
  const ReadBytes read = [file](uint64_t offset, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
  };
  return read_from(read, file.size(), path);
}

TensorFile read_tensor_file(const std::string& path) {
  {
    const InputFile file(path);
    std::array<std::byte, 4> first{};
    if (file.size() >= first.size()) file.read(0, first);
    if (is_zip(first)) {
      const ReadBytes read = [&file](uint64_t offset, std::span<std::byte> out) {
        file.read(offset, out);
      };
      return read_from(read, file.size(), path);
    }
  }
  return read_safetensors(path);
}

}  // namespace bv
