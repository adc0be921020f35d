// models/NAME.json: a model's sizes and its recipe, the options that it is trained with by default.
#pragma once
#include <any>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/option_values.h"

namespace bv {

struct ModelFamily;  // models/family.h

struct ModelConfig {
  std::string name, description;
  const ModelFamily* family = nullptr;
  int image_size = 0, patch_size = 0;         // patch_size: only in families with patches
  std::any sizes;                             // the family's struct of sizes
  std::array<double, 3> mean = {}, std = {};  // of pixels in 0-1
  // "recipe", and overrides by kind of data: "recipe_builtin", "recipe_cifar", "recipe_folder".
  std::map<std::string, Values, std::less<>> recipes;
};

std::filesystem::path models_folder();
std::vector<std::string> json_files_in(const std::filesystem::path& folder);  // names, sorted
std::vector<std::string> known_models();                                      // sorted
// Throws UserError for an unknown model (naming the nearest), an unknown key, an impossible size.
// where: before the message about an unknown model, "FILE: ".
ModelConfig load_model_config(const std::string& name, const std::string& where = "");
ModelConfig parse_model_config(std::string_view text, const std::string& path,
                               const std::string& name);
// The error for such a file in place of options.
[[noreturn]] void refuse_model_config(const std::string& path);

}  // namespace bv
