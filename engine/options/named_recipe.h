// models/recipes/NAME.json or a file of the user's: a model and its options, --recipe NAME|FILE. A
// key that begins with // is a comment on the options after it: the source of their values, or why
// they differ from it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/option_values.h"

namespace bv {

struct NamedRecipe {
  struct Part {
    std::string comment;
    std::vector<std::string> options;  // names, in the file's order; may be empty
  };
  std::string name, description, model, origin;  // origin: the comment on the whole recipe, "//"
  std::vector<Part> parts;
  Values values;
};

std::vector<std::string> known_recipes();  // sorted
// Throws UserError for an unknown recipe (naming the nearest), unknown or nested key, or bad value.
NamedRecipe load_recipe(const std::string& name);
NamedRecipe parse_recipe(std::string_view text, const std::string& path, const std::string& name);

}  // namespace bv
