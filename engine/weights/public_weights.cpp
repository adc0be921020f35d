#include "engine/weights/public_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/options/model_config.h"

namespace bv {
namespace {

// Replaces {} in `form` with a name like "resnet50.a1_in1k".
std::string with_name(const std::string& form, const std::string& name) {
  const size_t at = form.find("{}");
  return at == form.npos ? form : form.substr(0, at) + name + form.substr(at + 2);
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> all;
  for (const Json& text : list) all.push_back(text.is_string() ? text.get<std::string>() : "");
  return all;
}

PublicWeights parse_entry(JsonReader& file, const std::string& kind, const std::string& name,
                          JsonReader entry) {
  PublicWeights w{.name = kind + name,
                  .host = file.text("host"),
                  .path = with_name(file.text("path"), name),
                  .file = kind + name + file.text("extension"),
                  .licence = entry.text("licence"),
                  .page = with_name(file.text("page"), name),
                  .mib = entry.whole("mib", 1 << 20),
                  .outputs = static_cast<int>(entry.count("outputs", 1'000'000))};
  if (entry.has("also"))
    for (const std::string& other : texts(entry.need("also"))) w.also.push_back(kind + other);
  if (entry.has("sha256")) w.sha256 = entry.text("sha256");
  if (w.sha256.size() > 64 || w.sha256.find_first_not_of("0123456789abcdef") != w.sha256.npos)
    entry.fail("sha256", "must be at most 64 hexadecimal digits in lower case");
  w.info.model = entry.text("model");
  w.info.image_size = entry.whole("image_size", 4096);
  if (entry.has("patch_size")) w.info.patch_size = entry.whole("patch_size", 1024);
  w.info.mean = entry.numbers<3>("mean", "must be 3 numbers", 0, 1);
  w.info.std = entry.numbers<3>("std", "must be 3 numbers", 1e-3, 1);
  w.info.crop_mode = CropMode::center;
  w.info.crop_pct = entry.number("crop_pct", 1e-3, 1);
  const std::string& resampling = entry.text("interpolation");
  constexpr auto known = words(Interpolation{});
  const auto word = std::ranges::find(known, resampling);
  if (word == known.end())
    entry.fail("interpolation", "must be " + join(texts_of(Interpolation{}), " or "));
  w.info.interpolation = static_cast<Interpolation>(word - known.begin());
  entry.refuse_unknown();
  return w;
}

// Names that contain `name`; if there is none, the nearest one.
std::string near(const std::string& name, const std::vector<PublicWeights>& all) {
  constexpr size_t max_shown = 6;
  std::vector<std::string> names, around;
  for (const PublicWeights& w : all) {
    names.push_back(w.name);
    names.insert(names.end(), w.also.begin(), w.also.end());
    if (w.name.find(name) != w.name.npos) around.push_back(w.name);
  }
  if (around.empty()) return nearest(name, names);
  const size_t shown = std::min(around.size(), max_shown), rest = around.size() - shown;
  return join(std::span(around).first(shown), ", ") +
         (rest ? " and " + std::to_string(rest) + " more" : "");
}

}  // namespace

std::vector<PublicWeights> parse_public_weights(std::string_view text, const std::string& path) {
  const Json root = parse_json_object(text, path);
  JsonReader file(root, path);
  const std::string kind = file.text("kind") + "/";
  std::vector<PublicWeights> all;
  const Json& entries = file.need("weights");
  if (!entries.is_object()) file.fail("weights", "must be an object");
  for (const auto& [name, entry] : entries.items()) {
    const std::string where = path + ": " + kind + name;
    if (!entry.is_object()) throw UserError(where + ": must be an object");
    all.push_back(parse_entry(file, kind, name, JsonReader(entry, where)));
  }
  file.refuse_unknown();
  return all;
}

std::vector<PublicWeights> public_weights() {
  const std::filesystem::path folder = models_folder() / "weights";
  std::vector<PublicWeights> all;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return all;
  for (const std::string& file : json_files_in(folder)) {
    const std::string path = folder / (file + ".json");
    for (PublicWeights& w : parse_public_weights(read_text_file(path), path))
      all.push_back(std::move(w));
  }
  return all;
}

PublicWeights find_public_weights(const std::string& name) {
  const std::vector<PublicWeights> all = public_weights();
  for (const PublicWeights& w : all)
    if (w.name == name || std::ranges::count(w.also, name)) return w;
  const std::string names = near(name, all);
  throw UserError("no public weights " + printable(name) + " are known" +
                  (names.empty() ? "" : "; similar: " + names) +
                  "; ./launcher weights list shows all");
}

}  // namespace bv
