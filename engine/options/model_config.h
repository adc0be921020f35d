// models/NAME.json: a model's sizes and its recipe, the options it trains well with.
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/option_values.h"

namespace bv {

struct ModelConfig {
  std::string name, description;
  std::string family;  // "vit" or "resnet"
  int image_size = 0;
  // vit (models/vit.h)
  int patch_size = 0, embed_dim = 0, depth = 0, heads = 0;
  double mlp_ratio = 4, layer_norm_eps = 1e-6;
  // resnet (models/resnet.h)
  bool bottleneck = false;
  std::array<int, 4> layers = {};
  int groups = 1, width_per_group = 64;
  bool is_resnet() const { return family == "resnet"; }

  std::array<double, 3> mean = {}, std = {};  // of pixels in 0-1
  // "recipe", and what a kind of data overrides: "recipe_builtin", "recipe_cifar", "recipe_folder".
  std::map<std::string, Values, std::less<>> recipes;
};

std::filesystem::path models_folder();
std::vector<std::string> json_files_in(const std::filesystem::path& folder);  // names, sorted
std::vector<std::string> known_models();                                      // sorted
// Throws UserError: an unknown model (naming the nearest), an unknown key, an impossible size.
ModelConfig load_model_config(const std::string& name);
ModelConfig parse_model_config(std::string_view text, const std::string& path,
                               const std::string& name);

}  // namespace bv
