// .safetensors files: an 8-byte header length, a JSON header of names, dtypes, shapes and offsets,
// raw data (https://github.com/huggingface/safetensors). The reader trusts nothing: every length is
// checked against the file's size before use. Throws UserError naming the file and what is wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_io.h"

namespace bv {

struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<float> data;  // fp32 in memory, whatever the file's dtype
  bool integers = false;    // in the file
};

using Tensors = std::map<std::string, HostTensor>;  // by name

struct TensorFile {
  std::map<std::string, std::string> metadata = {};
  Tensors tensors = {};
  // A file may have several dictionaries of tensors (torch_file.h):
  std::string taken = {};               // the key of the one that was read: "state_dict"
  std::vector<std::string> also = {};   // keys of others that fit the model as well
  std::vector<std::string> found = {};  // all: "state_dict (152 tensors)"
};

// A tensor to be written; its memory belongs to the caller.
struct TensorView {
  std::string name;
  std::span<const int64_t> shape;
  std::span<const float> data;
  bool channels_last = false;  // data in memory order (channels_last.h), the file in file order
};
using TensorViews = std::vector<TensorView>;  // sorted by name
TensorViews views_of(const Tensors&);

TensorFile read_safetensors(const std::string& path);
// The same for a file in memory; `path` names it in messages.
TensorFile parse_safetensors(std::span<const std::byte> file, const std::string& path);
// Equal contents give equal bytes. Written through OutputFile; returns size and checksum.
FileDigest write_safetensors(const std::string& path,
                             const std::map<std::string, std::string>& metadata,
                             const TensorViews&);
inline FileDigest write_safetensors(const std::string& path, const TensorFile& file) {
  return write_safetensors(path, file.metadata, views_of(file.tensors));
}

}  // namespace bv
