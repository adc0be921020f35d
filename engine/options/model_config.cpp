#include "engine/options/model_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/options/foreign_models.h"
#include "models/family.h"

namespace bv {

namespace fs = std::filesystem;

// BAREVISION_MODELS, else the place where `make install` puts them, else models/ next to the
// program or in a folder above it.
fs::path models_folder() {
  if (const char* folder = std::getenv("BAREVISION_MODELS"); folder && *folder) return folder;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path installed = program.parent_path() / "share/barevision/models";
  if (fs::is_directory(installed, error)) return installed;
  for (fs::path above = program; above.has_relative_path(); above = above.parent_path())
    if (fs::is_directory(above / "models", error)) return above / "models";
  throw UserError("no folder models/ next to " + (program / "launcher").string() +
                  "; set BAREVISION_MODELS to its path");
}

// "BAREVISION_MODELS=DIR" if the folder is the variable's.
static std::string said(const fs::path& folder) {
  return (std::getenv("BAREVISION_MODELS") ? "BAREVISION_MODELS=" : "") + folder.string();
}

std::vector<std::string> json_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") names.push_back(at->path().stem());
  if (error == std::errc::no_such_file_or_directory)
    throw UserError(said(folder) + ": no such folder");
  if (error) throw UserError(said(folder) + ": can't be read: " + error.message());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> known_models() {
  const fs::path folder = models_folder();
  std::vector<std::string> names = json_files_in(folder);
  if (names.empty()) throw UserError(said(folder) + ": no models (MODEL.json) in this folder");
  return names;
}

ModelConfig load_model_config(const std::string& name, const std::string& where) {
  const std::vector<std::string> names = known_models();
  if (std::ranges::find(names, name) == names.end()) {
    const std::string elsewhere = advice_for_foreign_model(name);
    throw UserError(where + "unknown model '" + printable(name) + "'" +
                    (elsewhere.empty() ? suggestion(name, names) : elsewhere) +
                    "; available: " + join(names, ", "));
  }
  const std::string path = models_folder() / (name + ".json");
  return parse_model_config(read_text_file(path), path, name);
}

void refuse_model_config(const std::string& path) {
  throw UserError(path +
                  ": a model's sizes and defaults, not a file of options; ./launcher MODEL " +
                  "trains the models of " + models_folder().string());
}

ModelConfig parse_model_config(std::string_view text, const std::string& path,
                               const std::string& name) {
  const Json root = parse_json_object(text, path);
  JsonReader json(root, path);
  ModelConfig model{.name = name, .description = json.text("description")};
  const std::string& family = json.text("family");
  model.image_size = json.whole("image_size", 4096);
  model.mean = json.numbers<3>("mean", "must be 3 numbers", 0, 1);
  model.std = json.numbers<3>("std", "must be 3 numbers", 1e-3, 1);
  model.family = find_family(family);
  if (model.family == nullptr) {
    std::vector<std::string> names;
    for (const ModelFamily* known : families()) names.emplace_back(known->name);
    json.fail("unknown family '" + printable(family) + "'; available: " + join(names, ", "));
  }
  if (model.family->patches) model.patch_size = json.whole("patch_size", 1024);
  model.sizes = model.family->read(json);
  for (const char* section : {"recipe", "recipe_builtin", "recipe_cifar", "recipe_folder"}) {
    const Json* recipe = json.object(section);
    if (recipe == nullptr) continue;
    model.recipes[section] = values_from_json(*recipe, path + ": " + section, OptionFile::recipe);
  }
  json.refuse_unknown();
  return model;
}

}  // namespace bv
