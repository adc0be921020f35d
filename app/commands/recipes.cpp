// recipes [NAME]: lists models/recipes/, or shows one recipe and the source of each value.
#include <cstdio>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/named_recipe.h"
#include "engine/options/weights_name.h"

namespace bv {

namespace {

struct RecipesOptions {
  std::string recipe;
};
constexpr OptionRow rows[] = {positional("recipe", "[NAME]", field<&RecipesOptions::recipe>,
                                         "the recipe to explain; without it, all are listed")};

std::string list_of_recipes() {
  size_t longest = 0;
  for (const std::string& name : known_recipes()) longest = std::max(longest, name.size());
  constexpr size_t roomy = 100;  // in narrower terminals a name has a line of its own
  const size_t width = text_width(), column = width < roomy ? 8 : longest + 4;
  std::string text;
  for (const std::string& name : known_recipes())
    text += listed(name, load_recipe(name).description, width, column);
  return text +
         wrap(as_called("./launcher recipes NAME says where each value is from, "
                        "./launcher --recipe NAME --data PATH trains"),
              0, 0, width) +
         "\n";
}

std::string flags_of(const NamedRecipe::Part& part, const Values& values) {
  std::vector<std::string> flags;
  for (const std::string& name : part.options) {
    if (!values.contains(name)) continue;  // null
    const OptionRow& row = *find_option(name);
    const std::string value = join(values.at(name), ",");
    flags.push_back(row.flag() + (row.is_flag() && value == "true" ? ""
                                  : row.is_flag()                  ? "=" + value
                                                                   : " " + value));
  }
  return join(flags, " ");
}

std::string explanation(const NamedRecipe& recipe) {
  const size_t width = text_width();
  std::string text = recipe.name + ": " +
                     wrap(recipe.description, recipe.name.size() + 2, 2, width) + "\n" +
                     wrap(recipe.origin, 0, 0, width) + "\n\n" + recipe.model + "\n";
  for (const NamedRecipe::Part& part : recipe.parts) {
    if (const std::string flags = flags_of(part, recipe.values); !flags.empty())
      text += "  " + wrap(flags, 2, 2, width) + "\n";
    text += "      " + wrap(part.comment, 6, 6, width) + "\n";
  }
  const auto weights = recipe.values.find("weights");
  if (weights != recipe.values.end() && names_public_weights(weights->second[0]))
    text += "\n" +
            wrap(as_called("its weights: ./launcher weights fetch " + weights->second[0]), 0, 2,
                 width) +
            "\n";
  return text;
}

int print_recipes(const CommandLine& line, const std::vector<std::string>&) {
  const std::string name = own_options<RecipesOptions>(line).recipe;
  std::fputs((name.empty() ? list_of_recipes() : explanation(load_recipe(name))).c_str(), stdout);
  return 0;
}

}  // namespace

constinit const Command recipes_command = {
    .name = "recipes",
    .usage = "[NAME]",
    .summary = "list the recipes of --recipe, or show the options of one and the source of each",
    .own = rows,
    .run = print_recipes};

}  // namespace bv
