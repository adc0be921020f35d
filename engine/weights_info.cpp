// What a weights file says of itself: strings, of which some hold a number or a JSON list.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/error.h"
#include "engine/json_depth.h"
#include "engine/weights.h"

namespace bv {
namespace {

using nlohmann::json;

class MetadataReader {
 public:
  MetadataReader(const TensorFile& file, const std::string& path) : file_(file), path_(path) {}

  std::optional<std::string> text(const std::string& key) const {
    const auto at = file_.metadata.find(key);
    return at == file_.metadata.end() ? std::nullopt : std::optional(at->second);
  }

  std::optional<int> size(const std::string& key) const {
    const auto value = text(key);
    if (!value) return std::nullopt;
    int number = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end || number < 1) fail(key, "a number above 0");
    return number;
  }

  std::vector<std::string> names(const std::string& key) const {
    const json items = list(key, "a JSON list of texts");
    std::vector<std::string> out;
    for (const json& item : items) {
      if (!item.is_string()) fail(key, "a JSON list of texts");
      out.push_back(item.get<std::string>());
    }
    return out;
  }

  std::optional<std::array<double, 3>> channels(const std::string& key, double above) const {
    const char* const wanted = "a JSON list of three numbers, for red, green and blue in 0-1";
    if (!text(key)) return std::nullopt;
    const json items = list(key, wanted);
    if (items.size() != 3) fail(key, wanted);
    std::array<double, 3> out;
    for (size_t c = 0; c < 3; ++c) {
      if (!items[c].is_number()) fail(key, wanted);
      out[c] = items[c].get<double>();
      if (!std::isfinite(out[c]) || out[c] <= above) fail(key, wanted);
    }
    return out;
  }

 private:
  json list(const std::string& key, const std::string& wanted) const {
    const auto value = text(key);
    if (!value) return json::array();
    if (json_deeper_than(*value, 1)) fail(key, wanted);
    const json items = json::parse(*value, nullptr, false);
    if (!items.is_array()) fail(key, wanted);
    return items;
  }

  [[noreturn]] void fail(const std::string& key, const std::string& wanted) const {
    throw UserError(path_ + ": metadata " + key + " is not " + wanted + ": " +
                    printable(*text(key)));
  }

  const TensorFile& file_;
  const std::string& path_;
};

}  // namespace

WeightsInfo weights_info(const TensorFile& file, const std::string& path) {
  const MetadataReader read(file, path);
  return {.model = read.text("model"),
          .image_size = read.size("image_size"),
          .patch_size = read.size("patch_size"),
          .classes = read.names("classes"),
          .mean = read.channels("mean", -HUGE_VAL),
          .std = read.channels("std", 0)};
}

std::map<std::string, std::string> weights_metadata(const WeightsInfo& info) {
  std::map<std::string, std::string> out{{"format", "pt"}};
  // A class may be named after a folder whose name is not UTF-8.
  const auto text = [](const json& list) {
    return list.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  if (info.model) out["model"] = *info.model;
  if (info.image_size) out["image_size"] = std::to_string(*info.image_size);
  if (info.patch_size) out["patch_size"] = std::to_string(*info.patch_size);
  if (!info.classes.empty()) out["classes"] = text(info.classes);
  if (info.mean) out["mean"] = text(*info.mean);
  if (info.std) out["std"] = text(*info.std);
  return out;
}

}  // namespace bv
