#include "engine/weights/shards.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

using Names = std::set<std::string>;

// The names of each shard's tensors. Shards lie beside the index: no name may lead elsewhere.
std::map<std::string, Names> shards_of(const std::string& text, const std::string& path) {
  const Json root = parse_json_object(text, path);
  JsonReader index(root, path);
  const Json& map = index.need("weight_map");
  if (!map.is_object() || map.empty()) index.fail("weight_map", "must name the tensors' files");
  std::map<std::string, Names> shards;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.size() > 255 || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != name.npos)
      throw UserError(path + ": '" + printable(tensor) + "' is in '" + printable(name) +
                      "', which is no name of a file beside the index");
    shards[name].insert(tensor);
  }
  return shards;
}

[[noreturn]] void refuse(const std::string& path, const std::string& shard, const std::string& name,
                         const char* how) {
  throw UserError(path + ": " + how + " '" + printable(name) + "' in " + printable(shard) +
                  "; the files are not of one model, download all of them again");
}

}  // namespace

bool is_shard_index(const std::string& text) { return text.find("\"weight_map\"") != text.npos; }

TensorFile read_shards(const std::string& text, const std::string& path,
                       const std::function<TensorFile(const std::string& path)>& read) {
  const std::map<std::string, Names> shards = shards_of(text, path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  std::error_code error;
  for (const auto& [shard, names] : shards)
    if (!std::filesystem::exists(folder / shard, error))
      throw UserError(path + ": its file " + printable(shard) + " isn't beside it (" +
                      std::to_string(shards.size()) + " are needed); download it");
  TensorFile all;
  uint64_t bytes = 0;
  for (const auto& [shard, names] : shards) {
    TensorFile part = read(folder / shard);
    for (const std::string& name : names)
      if (!part.tensors.contains(name)) refuse(path, shard, name, "there is no");
    for (auto& [name, tensor] : part.tensors) {
      if (!names.contains(name)) refuse(path, shard, name, "it doesn't know of");
      bytes += tensor.data.size() * sizeof(float);
      all.tensors[name] = std::move(tensor);
    }
    if (bytes > memory)
      throw UserError(path + ": its tensors take more than the " + std::to_string(memory >> 20) +
                      " MiB of this machine");
    all.metadata.merge(part.metadata);
  }
  return all;
}

}  // namespace bv
