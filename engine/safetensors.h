// .safetensors files: an 8-byte header length, a JSON header of names, dtypes, shapes and offsets,
// raw data. https://github.com/huggingface/safetensors (format). The reader trusts nothing: every
// length is checked against the file's size before it is used. Throws UserError naming the file and
// what is wrong.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace bv {

struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<float> data;  // fp32 in memory, whatever the file has (F64, F32, F16, BF16)
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HostTensor> tensors;  // sorted by name
};

TensorFile read_safetensors(const std::string& path);
// The same bytes for the same contents. Written to `path` and synced; throws RunError (disk full
// ...), leaving no file.
void write_safetensors(const std::string& path, const TensorFile&);

}  // namespace bv
