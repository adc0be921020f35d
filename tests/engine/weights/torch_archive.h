// Builds files as torch.save writes them: a zip archive of a pickle and the tensors' data.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/checksum.h"
#include "engine/files/safetensors.h"

namespace bv::test {

inline std::string little_endian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, number >>= 8) text += static_cast<char>(number);
  return text;
}

// A zip archive whose members are stored, not compressed.
struct TorchArchive {
  std::vector<std::pair<std::string, std::string>> members;
  bool zip64 = false;  // the end record refers to a zip64 record, as in files above 4 GiB
  int method = 0, flags = 0x808;
  uint64_t shift = 0;  // added to the last member's offset in the directory

  std::string bytes() const {
    std::string file, directory;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto& [name, contents] = members[i];
      const std::string same = little_endian(flags, 2) + little_endian(method, 2) +
                               little_endian(0, 4) +
                               little_endian(crc32(std::as_bytes(std::span(contents))), 4) +
                               little_endian(contents.size(), 4) +
                               little_endian(contents.size(), 4) + little_endian(name.size(), 2);
      const uint64_t at = file.size() + (i + 1 == members.size() ? shift : 0);
      // torch.save pads so that the contents begin at a multiple of 64.
      const std::string padding((64 - (file.size() + 34 + name.size()) % 64) % 64, 'Z');
      file += "PK\3\4" + little_endian(0, 2) + same + little_endian(padding.size() + 4, 2) + name +
              "FB" + little_endian(padding.size(), 2) + padding + contents;
      directory += "PK\1\2" + little_endian(0, 4) + same + little_endian(0, 12) +
                   little_endian(at, 4) + name;
    }
    const uint64_t begin = file.size(), size = directory.size(), count = members.size();
    file += directory;
    if (zip64)
      file += "PK\6\6" + little_endian(44, 8) + little_endian(0, 12) + little_endian(count, 8) +
              little_endian(count, 8) + little_endian(size, 8) + little_endian(begin, 8) +
              "PK\6\7" + little_endian(0, 4) + little_endian(begin + size, 8) + little_endian(1, 4);
    const uint64_t most = zip64 ? UINT64_MAX : 0;
    return file + "PK\5\6" + little_endian(0, 4) + little_endian(count | most, 2) +
           little_endian(count | most, 2) + little_endian(size | most, 4) +
           little_endian(begin | most, 4) + little_endian(0, 2);
  }
};

// Pieces of pickles of protocol 2.
inline std::string pickled(const std::string& text) {
  return "X" + little_endian(text.size(), 4) + text;
}
inline std::string pickled(int64_t number) { return "J" + little_endian(uint64_t(number), 4); }
inline std::string pickled(const std::vector<int64_t>& tuple) {
  std::string text = "(";
  for (const int64_t n : tuple) text += pickled(n);
  return text + "t";
}
inline const std::string ordered_dict = "ccollections\nOrderedDict\n)R";

struct TorchTensor {
  std::string name, type = "FloatStorage", key = "0";
  int64_t elements = 0, offset = 0;
  std::vector<int64_t> sizes, strides;
  bool old = false;  // as before PyTorch 1.6

  std::string storage() const {
    return "(" + pickled("storage") + "ctorch\n" + type + "\n" + pickled(key) + pickled("cpu") +
           pickled(elements) + (old ? "N" : "") + "tQ";
  }
  std::string value() const {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage() + pickled(offset) + pickled(sizes) +
           pickled(strides) + "\x89" + ordered_dict + "tR";
  }
};

// A state dict with the versions of its modules.
inline std::string state_dict(const std::vector<TorchTensor>& tensors) {
  std::string text = "\x80\2" + ordered_dict + "(";
  for (const TorchTensor& t : tensors) text += pickled(t.name) + t.value();
  return text + "u}" + pickled("_metadata") + ordered_dict + "sb.";
}

inline std::string of_floats(const std::vector<float>& numbers) {
  std::string text(numbers.size() * sizeof(float), '\0');
  if (!text.empty()) std::memcpy(text.data(), numbers.data(), text.size());
  return text;
}

inline std::string torch_file(const std::string& pickle, const std::vector<std::string>& storages) {
  TorchArchive archive{.members = {{"w/data.pkl", pickle}, {"w/byteorder", "little"}}};
  for (size_t i = 0; i < storages.size(); ++i)
    archive.members.emplace_back("w/data/" + std::to_string(i), storages[i]);
  archive.members.emplace_back("w/version", "3\n");
  return archive.bytes();
}

// A file like torchvision's: each tensor has a storage of its own.
inline std::string torch_file_of(const Tensors& weights) {
  std::vector<TorchTensor> tensors;
  std::vector<std::string> storages;
  for (const auto& [name, tensor] : weights) {
    TorchTensor t{.name = name,
                  .key = std::to_string(storages.size()),
                  .elements = int64_t(tensor.data.size()),
                  .sizes = tensor.shape,
                  .strides = std::vector<int64_t>(tensor.shape.size(), 1)};
    for (size_t i = t.sizes.size(); i-- > 1;) t.strides[i - 1] = t.strides[i] * t.sizes[i];
    tensors.push_back(t);
    storages.push_back(of_floats(tensor.data));
  }
  return torch_file(state_dict(tensors), storages);
}

// As PyTorch wrote before 1.6; each of `storages` is its number of elements and its bytes.
inline std::string old_torch_file(const std::string& pickle, const std::vector<std::string>& keys,
                                  const std::vector<std::string>& storages) {
  std::string file =
      "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\x03.\x80\2}(" +
      pickled("protocol_version") + "M\xe9\x03" + pickled("little_endian") + "\x88" +
      pickled("type_sizes") + "}u." + pickle + "\x80\2](";
  for (const std::string& key : keys) file += pickled(key);
  file += "e.";
  for (const std::string& storage : storages) file += storage;
  return file;
}

}  // namespace bv::test
