// The TFRecord files of a set are called NAME-00000-of-00003, with or without an extension.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bv {

struct ShardName {
  std::string set;  // NAME, with the folder
  int64_t number, of;
};
std::optional<ShardName> shard_name(std::string_view file);
bool has_record_extension(std::string_view file);

// "2 of 3 shards of train, the first train-00001-of-00003": the shards missing among these
// non-empty files; empty if none is missing.
std::string missing_shards(std::span<const std::string> files);

}  // namespace bv
