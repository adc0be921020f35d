#include "engine/options/named_recipe.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

std::filesystem::path recipes_folder() { return models_folder() / "recipes"; }

}  // namespace

std::vector<std::string> known_recipes() {
  std::error_code ignored;
  const std::filesystem::path folder = recipes_folder();
  return std::filesystem::is_directory(folder, ignored) ? json_files_in(folder)
                                                        : std::vector<std::string>{};
}

NamedRecipe load_recipe(const std::string& name) {
  const std::vector<std::string> names = known_recipes();
  std::string path = recipes_folder() / (name + ".json");
  if (std::ranges::find(names, name) == names.end()) {
    path = name;
    if (!name.ends_with(".json") || !there_is(path))
      throw UserError("unknown recipe '" + printable(name) + "'" + suggestion(name, names) +
                      (name.ends_with(".json") ? ": no such file" : "") +
                      "; available: " + join(names, ", ") + ", or a FILE.json of your own");
  }
  return parse_recipe(read_text_file(path), path, name);
}

NamedRecipe parse_recipe(std::string_view text, const std::string& path, const std::string& name) {
  Json root = parse_json_object(text, path);
  if (root.contains("family")) refuse_model_config(path);
  NamedRecipe recipe{.name = name};
  Json options = Json::object();
  for (const auto& [key, value] : root.items()) {
    const bool comment = key.starts_with("//");
    std::string* const own = key == "description" ? &recipe.description
                             : key == "model"     ? &recipe.model
                             : key == "//"        ? &recipe.origin
                                                  : nullptr;
    if ((own || comment) && !value.is_string())
      throw UserError(path + ": '" + printable(key) + "' must be text in quotes");
    if (own) {
      *own = value;
    } else if (comment) {
      recipe.parts.push_back({.comment = value, .options = {}});
    } else {
      if (recipe.parts.empty()) recipe.parts.emplace_back();
      recipe.parts.back().options.push_back(key);
      options[key] = value;
    }
  }
  for (const auto& [key, own] :
       {std::pair{"description", &recipe.description}, {"model", &recipe.model}})
    if (own->empty())
      throw UserError(path + ": '" + key + "' is missing; --config takes files of options alone");
  recipe.values = values_from_json(options, path, OptionFile::named_recipe);
  return recipe;
}

}  // namespace bv
