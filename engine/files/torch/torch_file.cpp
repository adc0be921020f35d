#include "engine/files/torch/torch_file.h"

#include <array>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/files/file.h"
#include "base/text.h"
#include "engine/files/torch/state_dict.h"
#include "engine/files/torch/zip_archive.h"

namespace bv {
namespace {

constexpr uint64_t max_pickle_bytes = 64 << 20;
constexpr const char* big_endian = "its numbers are big-endian; save it again on another machine";

// "NAME/" of NAME/data.pkl
std::string prefix_in(const ZipArchive& archive) {
  const std::string pickle = "data.pkl";
  for (const auto& [name, member] : archive.members())
    if (name.find('/') == name.size() - pickle.size() - 1 && name.ends_with("/" + pickle))
      return name.substr(0, name.size() - pickle.size());
  throw FileError("a zip archive without a data.pkl, not a torch.save file");
}

TensorFile read_archive(const ReadBytes& read, uint64_t file_bytes, const TensorChoice& choice) {
  const ZipArchive archive(read, file_bytes);
  const std::string prefix = prefix_in(archive), order = prefix + "byteorder";
  if (archive.find(order)) {
    const std::vector<uint8_t> word = archive.contents(order, 16);
    if (std::string(word.begin(), word.end()) != "little") throw FileError(big_endian);
  }
  const Pickle pickle(archive.contents(prefix + "data.pkl", max_pickle_bytes), torch_kind);
  const auto find = [&](const std::string& key) -> std::optional<StoragePlace> {
    const std::string name = prefix + "data/" + key;
    const ZipMember* const member = archive.find(name);
    if (!member) return {};
    archive.check(name);
    return StoragePlace{member->begin, member->bytes};
  };
  return read_state_dict(pickle, read, find, choice);
}

// A file written before PyTorch 1.6: pickles of a magic number, a version, the machine's types, the
// object and the keys of its storages, followed by each storage's number of elements and its bytes.
class OldFile {
 public:
  OldFile(const ReadBytes& read, uint64_t bytes) : read_(read), bytes_(bytes) {}

  TensorFile read(const TensorChoice& choice) {
    constexpr uint64_t few = 1 << 16;
    constexpr int64_t version = 1001;
    at_ = magic.size();
    if (const Pickle number = next(few);
        number.root().kind != PickleValue::integer || number.root().number != version)
      throw FileError("a torch.save file of an unknown version");
    const Pickle types = next(few);
    if (const PickleValue* little = types.member("little_endian"); !little || !little->number)
      throw FileError(big_endian);
    const Pickle object = next(max_pickle_bytes), keys = next(max_pickle_bytes);
    find_places(object, keys);
    const auto find = [&](const std::string& key) {
      const auto place = places_.find(key);
      return place == places_.end() ? std::nullopt : std::optional(place->second);
    };
    return read_state_dict(object, read_, find, choice);
  }

  static constexpr std::string_view magic =
      "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

 private:
  Pickle next(uint64_t limit) {
    std::vector<uint8_t> head(std::min(limit, bytes_ - at_));
    read_(at_, std::as_writable_bytes(std::span(head)));
    uint64_t size = 0;
    Pickle pickle(std::move(head), torch_kind, &size);
    at_ += size;
    return pickle;
  }

  void find_places(const Pickle& object, const Pickle& keys) {
    std::map<std::string_view, uint64_t> element_bytes;
    for (const PickleValue& value : object.values()) {
      if (value.kind != PickleValue::storage) continue;
      const PickleValue& type = object.item(value, StorageItems::type);
      if (type.kind == PickleValue::object)
        throw FileError("a storage of the unknown type " + object.name_of_object(type));
      element_bytes[object.item(value, StorageItems::key).bytes] = element_type_of(type).bytes;
    }
    if (keys.root().kind != PickleValue::list) throw FileError("it has no list of storages");
    for (size_t i = 0; i < keys.root().items.size(); ++i) {
      const PickleValue& key = keys.item(keys.root(), i);
      const auto known = element_bytes.find(key.bytes);
      if (key.kind != PickleValue::text || known == element_bytes.end())
        throw FileError("a storage that no tensor uses: '" + printable(key.bytes) + "'");
      uint64_t elements = 0, size = 0;
      const uint64_t left = bytes_ - at_;
      if (left >= sizeof elements) read_(at_, std::as_writable_bytes(std::span(&elements, 1)));
      if (left < sizeof elements || __builtin_mul_overflow(elements, known->second, &size) ||
          size > left - sizeof elements)
        throw FileError("cut short in storage " + std::to_string(i + 1) + " of " +
                        std::to_string(keys.root().items.size()) + "; get the file again");
      places_[std::string(key.bytes)] = {.begin = at_ + sizeof elements, .bytes = size};
      at_ += sizeof elements + size;
    }
    if (at_ != bytes_)
      throw FileError("has " + counted(int64_t(bytes_ - at_), "byte") + " after its storages");
  }

  const ReadBytes& read_;
  uint64_t bytes_, at_ = 0;
  std::map<std::string, StoragePlace> places_;  // by key
};

using Reader = TensorFile (*)(const ReadBytes&, uint64_t file_bytes, const TensorChoice&);
constexpr size_t enough = OldFile::magic.size();

// The reader for a file with these first bytes; null: it isn't torch.save's.
Reader reader_for(std::string_view first) {
  if (first.starts_with("PK\3\4")) return read_archive;
  if (first.starts_with(OldFile::magic))
    return [](const ReadBytes& read, uint64_t bytes, const TensorChoice& choice) {
      return OldFile(read, bytes).read(choice);
    };
  return nullptr;
}

TensorFile read_by(Reader reader, const ReadBytes& read, uint64_t bytes, const std::string& path,
                   const TensorChoice& choice) try {
  if (!reader) throw FileError("not a torch.save file");
  return reader(read, bytes, choice);
} catch (const FileError& e) {
  throw UserError(path + ": " + e.what());
}

}  // namespace

TensorFile parse_torch_file(std::span<const std::byte> file, const std::string& path,
                            const TensorChoice& choice) {
  const ReadBytes read = [file](uint64_t offset, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
  };
  const std::string_view first(reinterpret_cast<const char*>(file.data()),
                               std::min(file.size(), enough));
  return read_by(reader_for(first), read, file.size(), path, choice);
}

bool is_torch_file(std::string_view first) { return reader_for(first) != nullptr; }

TensorFile read_torch_file(const std::string& path, const TensorChoice& choice) {
  const InputFile file(path);
  std::string first(std::min<uint64_t>(file.size(), enough), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  const ReadBytes read = [&file](uint64_t offset, std::span<std::byte> out) {
    file.read(offset, out);
  };
  return read_by(reader_for(first), read, file.size(), path, choice);
}

}  // namespace bv
