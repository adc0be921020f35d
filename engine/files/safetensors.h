// .safetensors files: an 8-byte header length, a JSON header of names, dtypes, shapes and offsets,
// raw data. https://github.com/huggingface/safetensors (format). The reader trusts nothing: every
// length is checked against the file's size before it is used. Throws UserError naming the file and
// what is wrong.
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
  std::vector<float> data;  // fp32 in memory, whatever the file has (BF16, I64 ...)
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HostTensor> tensors;  // sorted by name
};

TensorFile read_safetensors(const std::string& path);
// The same from memory; `path` is what messages call it.
TensorFile parse_safetensors(std::span<const std::byte> file, const std::string& path);
// The same bytes for the same contents. Written beside `path`, synced, renamed to it; throws
// WriteError, a RunError (disk full ...), leaving no file, or the one that was there before.
// Returns size and checksum.
FileDigest write_safetensors(const std::string& path, const TensorFile&);

}  // namespace bv
