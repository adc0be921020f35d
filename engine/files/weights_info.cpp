// Metadata values are strings; some contain a number or a JSON list.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/files/weights.h"

namespace bv {
namespace {

// More than any class list needs; a parsed list takes far more memory than its text.
constexpr size_t max_list_bytes = 4 << 20;

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
    const auto number = parse_integer(*value);
    if (!number || *number < 1 || *number > INT32_MAX) fail(key, "a number above 0");
    return int(*number);
  }

  std::optional<double> fraction(const std::string& key) const {
    const auto value = text(key);
    if (!value) return std::nullopt;
    const auto number = parse_number(*value);
    if (!number || *number <= 0 || *number > 1) fail(key, "a number above 0, at most 1");
    return number;
  }

  template <WithWords E>
  std::optional<E> choice(const std::string& key) const {
    const auto value = text(key);
    if (!value) return std::nullopt;
    constexpr auto known = words(E{});
    const auto word = std::ranges::find(known, *value);
    if (word == known.end()) fail(key, "a known value");
    return static_cast<E>(word - known.begin());
  }

  std::vector<std::string> names(const std::string& key) const {
    return list<std::vector<std::string>>(key, "a JSON list of strings")
        .value_or(std::vector<std::string>());
  }

  std::optional<std::array<double, 3>> channels(const std::string& key, double above) const {
    const char* const expected = "a JSON list of three numbers, for red, green and blue in 0-1";
    const auto numbers = list<std::vector<double>>(key, expected);
    if (!numbers) return std::nullopt;
    const auto too_small = [above](double x) { return !(x > above); };
    if (numbers->size() != 3 || std::ranges::any_of(*numbers, too_small)) fail(key, expected);
    return std::array{(*numbers)[0], (*numbers)[1], (*numbers)[2]};
  }

 private:
  template <class List>
  std::optional<List> list(const std::string& key, const std::string& expected) const {
    const auto value = text(key);
    if (!value) return std::nullopt;
    if (value->size() > max_list_bytes) fail(key, expected);
    try {
      return Json::parse(*value).get<List>();
    } catch (const Json::exception&) {
      fail(key, expected);
    }
  }

  [[noreturn]] void fail(const std::string& key, const std::string& expected) const {
    throw UserError(path_ + ": metadata " + key + " is not " + expected + ": " +
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
          .std = read.channels("std", 0),
          .crop_mode = read.choice<CropMode>("crop_mode"),
          .interpolation = read.choice<Interpolation>("interpolation"),
          .crop_pct = read.fraction("crop_pct")};
}

std::map<std::string, std::string> weights_metadata(const WeightsInfo& info) {
  std::map<std::string, std::string> out{{"format", "pt"}};
  if (info.model) out["model"] = *info.model;
  if (info.image_size) out["image_size"] = std::to_string(*info.image_size);
  if (info.patch_size) out["patch_size"] = std::to_string(*info.patch_size);
  if (!info.classes.empty()) out["classes"] = to_line(info.classes);
  if (info.mean) out["mean"] = to_line(json_numbers(*info.mean));
  if (info.std) out["std"] = to_line(json_numbers(*info.std));
  if (info.crop_mode) out["crop_mode"] = word_of(*info.crop_mode);
  if (info.interpolation) out["interpolation"] = word_of(*info.interpolation);
  if (info.crop_pct) out["crop_pct"] = format_number(*info.crop_pct);
  return out;
}

}  // namespace bv
