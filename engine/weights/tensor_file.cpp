#include "engine/weights/tensor_file.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "engine/files/checkpoint_read.h"
#include "engine/files/torch/torch_file.h"
#include "engine/weights/foreign_file.h"
#include "engine/weights/shards.h"

namespace bv {
namespace {

std::string first_bytes(const std::string& path) {
  constexpr uint64_t enough = 512;
  const InputFile file(path);
  std::string first(std::min(file.size(), enough), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  return first;
}

// A .safetensors file begins with the header's length in 8 bytes, which no text does.
bool begins_like_safetensors(std::string_view first) {
  return first.size() >= 8 && first.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

// Keeps the tensors whose names begin with the key.
void keep(TensorFile& file, const std::string& key, const std::string& path) {
  const std::string prefix = key + ".";
  Tensors kept;
  for (auto& [name, tensor] : file.tensors)
    if (name.starts_with(prefix)) kept[name.substr(prefix.size())] = std::move(tensor);
  if (kept.empty()) {
    std::string there = "no tensors";
    if (!file.tensors.empty()) there = "names like " + printable(file.tensors.begin()->first);
    if (!file.found.empty()) there = join(file.found, ", ");
    throw UserError(path + ": nothing in it is called " + printable(key) + "; it has " + there);
  }
  file.tensors = std::move(kept);
  file.also.clear();
}

TensorFile read_one(const std::string& path, const TensorChoice& choice) {
  const std::string first = first_bytes(path);
  if (is_torch_file(first)) return read_torch_file(path, choice);
  if (begins_like_safetensors(first)) return read_safetensors(path);
  if (const std::string what = about_foreign_file(first, path); !what.empty())
    throw UserError(path + ": " + what);
  return read_safetensors(path);
}

TensorFile read_any(const std::string& path, const TensorChoice& choice) {
  if (is_checkpoint_file(path)) return load_checkpoint_file(path);
  constexpr uint64_t max_index = 1 << 20;
  std::error_code error;
  if (begins_like_json(first_bytes(path)) && std::filesystem::file_size(path, error) <= max_index)
    if (const std::string text = read_text_file(path, max_index); is_shard_index(text))
      return read_shards(text, path, [&](const std::string& shard) {
        return read_one(shard, {.key = "", .model = choice.model});
      });
  return read_one(path, choice);
}

}  // namespace

TensorFile read_tensor_file(const std::string& path, const TensorChoice& choice) {
  TensorFile file = read_any(path, choice);
  if (!choice.key.empty() && file.taken != choice.key) keep(file, choice.key, path);
  return file;
}

}  // namespace bv
