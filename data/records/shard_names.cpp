#include "data/records/shard_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace bv {
namespace {

constexpr std::string_view extensions[] = {".tfrecord", ".tfrecords", ".tfrec"};

std::string_view without_extension(std::string_view file) {
  for (const std::string_view extension : extensions)
    if (file.ends_with(extension)) return file.substr(0, file.size() - extension.size());
  return file;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

}  // namespace

bool has_record_extension(std::string_view file) {
  return without_extension(file).size() < file.size();
}

std::optional<ShardName> shard_name(std::string_view file) {
  constexpr std::string_view between = "-of-";
  const std::string_view stem = without_extension(file);
  const size_t of = stem.rfind(between),
               dash = of == stem.npos || of == 0 ? stem.npos : stem.rfind('-', of - 1);
  if (dash == stem.npos || dash == 0) return {};
  const auto number = number_of(stem.substr(dash + 1, of - dash - 1)),
             all = number_of(stem.substr(of + between.size()));
  if (!number || !all) return {};
  return ShardName{std::string(stem.substr(0, dash)), *number, *all};
}

std::string missing_shards(std::span<const std::string> files) {
  std::map<std::pair<std::string, int64_t>, std::set<int64_t>> sets;
  for (const std::string& file : files)
    if (const auto shard = shard_name(file)) sets[{shard->set, shard->of}].insert(shard->number);
  std::string text;
  for (const auto& [name, numbers] : sets) {
    const auto& [set, of] = name;
    const int64_t missing = of - static_cast<int64_t>(numbers.size());
    if (missing <= 0) continue;
    int64_t first = 0;
    while (numbers.contains(first)) ++first;
    const auto five = [](int64_t number) {
      const std::string digits = std::to_string(number);
      return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
    };
    text += (text.empty() ? "" : ", ") + std::to_string(missing) + " of " + std::to_string(of) +
            " shards of " + set + ", the first " + set + "-" + five(first) + "-of-" + five(of);
  }
  return text;
}

}  // namespace bv
