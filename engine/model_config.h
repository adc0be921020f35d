// models/NAME.json: a model's sizes and its recipe, the options that it trains well with.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/option_table.h"

namespace bv {

struct ModelConfig {
  std::string name, description;
  std::string family;  // "vit"
  int image_size = 0, patch_size = 0;
  int embed_dim = 0, depth = 0, heads = 0;
  double mlp_ratio = 4, layer_norm_eps = 1e-6;
  std::array<double, 3> mean = {}, std = {};  // of pixels in 0-1
  // "recipe", and what differs from it for a kind of data: "recipe_builtin", "recipe_cifar",
  // "recipe_folder".
  std::map<std::string, Values, std::less<>> recipes;
};

// Names of the models there are, sorted.
std::vector<std::string> known_models();
// Throws UserError: an unknown model (and the nearest), an unknown key, a size that can't be.
ModelConfig load_model_config(const std::string& name);
ModelConfig parse_model_config(std::string_view text, const std::string& path,
                               const std::string& name);

}  // namespace bv
