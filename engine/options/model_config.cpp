#include "engine/options/model_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/text.h"
#include "engine/options/foreign_names.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

}  // namespace

// BAREVISION_MODELS, else models/ next to the program or in a folder above it.
fs::path models_folder() {
  if (const char* folder = std::getenv("BAREVISION_MODELS"); folder && *folder) return folder;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (fs::path above = program; above.has_relative_path(); above = above.parent_path())
    if (fs::is_directory(above / "models", error)) return above / "models";
  throw UserError("no folder models/ next to " + (program / "launcher").string() +
                  "; set BAREVISION_MODELS to it");
}

std::vector<std::string> json_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") names.push_back(at->path().stem());
  if (error) throw UserError(folder.string() + ": can't be read: " + error.message());
  std::ranges::sort(names);
  return names;
}

namespace {

// Reads the members of the file by name; a member that nobody asked for is unknown.
class Reader {
 public:
  Reader(const JsonValue& root, const std::string& path) : root_(root), path_(path) {}

  std::string text(const std::string& key) { return need(key, JsonValue::Kind::text).text; }
  double number(const std::string& key, double min, double max) {
    return checked(key, need(key, JsonValue::Kind::number), min, max);
  }
  int whole(const std::string& key, int max) {
    const double value = number(key, 1, max);
    if (value != static_cast<int>(value)) fail(key, "is not a whole number");
    return static_cast<int>(value);
  }
  template <size_t n>
  std::array<double, n> numbers(const std::string& key, const char* form, double min, double max) {
    const JsonValue& list = need(key, JsonValue::Kind::list);
    if (list.items.size() != n) fail(key, form);
    std::array<double, n> values;
    for (size_t i = 0; i < n; ++i) values[i] = checked(key, list.items[i], min, max);
    return values;
  }
  std::array<int, 4> stages(const std::string& key) {
    std::array<int, 4> blocks;
    const auto values = numbers<4>(key, "must be 4 numbers of blocks", 1, 1024);
    std::ranges::copy(values, blocks.begin());
    if (!std::ranges::equal(blocks, values)) fail(key, "must be whole numbers");
    return blocks;
  }
  bool flag(const std::string& key) {  // false where it is missing
    const JsonValue* value = find(key);
    if (value != nullptr) check_kind(key, *value, JsonValue::Kind::boolean);
    return value != nullptr && value->text == "true";
  }
  const JsonValue* object(const std::string& key) {
    const JsonValue* value = find(key);
    if (value != nullptr) check_kind(key, *value, JsonValue::Kind::object);
    return value;
  }
  void refuse_unknown() const {
    for (const auto& [key, value] : root_.members) {
      if (known_.contains(key)) continue;
      const std::vector<std::string> known(known_.begin(), known_.end());
      throw UserError(path_ + ": unknown key '" + printable(key) + "'" + suggestion(key, known));
    }
  }

 private:
  const JsonValue& root_;
  const std::string& path_;
  std::set<std::string> known_;

  [[noreturn]] void fail(const std::string& key, const std::string& reason) const {
    throw UserError(path_ + ": '" + key + "' " + reason);
  }
  const JsonValue* find(const std::string& key) {
    known_.insert(key);
    for (const auto& [name, value] : root_.members)
      if (name == key) return &value;
    return nullptr;
  }
  void check_kind(const std::string& key, const JsonValue& value, JsonValue::Kind kind) const {
    if (value.kind != kind) fail(key, "must be " + std::string(name_of(kind)));
  }
  const JsonValue& need(const std::string& key, JsonValue::Kind kind) {
    const JsonValue* value = find(key);
    if (value == nullptr) fail(key, "is missing");
    check_kind(key, *value, kind);
    return *value;
  }
  double checked(const std::string& key, const JsonValue& value, double min, double max) const {
    check_kind(key, value, JsonValue::Kind::number);
    const double number = parse_number(value.text).value_or(min - 1);
    if (!(number >= min && number <= max))
      fail(key, "must be from " + format_number(min) + " to " + format_number(max));
    return number;
  }
};

void read_vit(Reader& reader, ModelConfig& model, const std::string& path) {
  model.patch_size = reader.whole("patch_size", 1024);
  model.embed_dim = reader.whole("embed_dim", 65536);
  model.depth = reader.whole("depth", 1024);
  model.heads = reader.whole("heads", 1024);
  model.mlp_ratio = reader.number("mlp_ratio", 0.01, 100);
  model.layer_norm_eps = reader.number("layer_norm_eps", 1e-12, 1);
  model.distilled = reader.flag("distilled");
  if (model.embed_dim % model.heads != 0)
    throw UserError(path + ": 'embed_dim' is not divisible by 'heads'");
}

void read_resnet(Reader& reader, ModelConfig& model, const std::string& path) {
  const std::string block = reader.text("block");
  if (block != "basic" && block != "bottleneck")
    throw UserError(path + ": unknown 'block' " + printable(block) +
                    "; there are basic and bottleneck");
  model.bottleneck = block == "bottleneck";
  model.layers = reader.stages("layers");
  model.groups = reader.whole("groups", 1024);
  model.width_per_group = reader.whole("width_per_group", 1024);
  if (!model.bottleneck && (model.groups != 1 || model.width_per_group != 64))
    throw UserError(path +
                    ": 'groups' and 'width_per_group' are a bottleneck's; basic blocks have "
                    "1 and 64");
}

}  // namespace

std::vector<std::string> known_models() { return json_files_in(models_folder()); }

ModelConfig load_model_config(const std::string& name) {
  const std::vector<std::string> names = known_models();
  if (std::ranges::find(names, name) == names.end()) {
    const std::string elsewhere = advice_for_foreign_model(name);
    throw UserError("unknown model '" + printable(name) + "'" +
                    (elsewhere.empty() ? suggestion(name, names) : elsewhere) + "; there are " +
                    join(names, ", "));
  }
  const std::string path = models_folder() / (name + ".json");
  return parse_model_config(read_text_file(path), path, name);
}

ModelConfig parse_model_config(std::string_view text, const std::string& path,
                               const std::string& name) {
  const JsonValue root = parse_json_object(text, path);
  Reader reader(root, path);
  ModelConfig model{.name = name,
                    .description = reader.text("description"),
                    .family = reader.text("family"),
                    .image_size = reader.whole("image_size", 4096),
                    .mean = reader.numbers<3>("mean", "must be 3 numbers", 0, 1),
                    .std = reader.numbers<3>("std", "must be 3 numbers", 1e-3, 1)};
  if (model.family == "vit")
    read_vit(reader, model, path);
  else if (model.family == "resnet")
    read_resnet(reader, model, path);
  else
    throw UserError(path + ": unknown family '" + printable(model.family) +
                    "'; there are vit and resnet");
  for (const char* section : {"recipe", "recipe_builtin", "recipe_cifar", "recipe_folder"}) {
    const JsonValue* recipe = reader.object(section);
    if (recipe == nullptr) continue;
    model.recipes[section] = values_from_json(*recipe, path + ": " + section, OptionFile::recipe);
  }
  reader.refuse_unknown();
  return model;
}

}  // namespace bv
