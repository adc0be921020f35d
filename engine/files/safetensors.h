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

#include "engine/base/file_io.h"

namespace bv {

struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<float> data;  // fp32 in memory, whatever the file's dtype
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HostTensor> tensors;  // sorted by name
};

TensorFile read_safetensors(const std::string& path);
// The same from memory; `path` names it in messages.
TensorFile parse_safetensors(std::span<const std::byte> file, const std::string& path);
// The same contents give the same bytes. Written as OutputFile; returns size and checksum.
FileDigest write_safetensors(const std::string& path, const TensorFile&);

}  // namespace bv
