#include "app/html_report/repeat.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "engine/options/config.h"

namespace bv {
namespace {

// Options decided by the data, or given in another form on the command line.
constexpr std::string_view left_out[] = {"model",       "classes",      "nproc",
                                         "local_batch", "bucket_bytes", "report"};

std::string value_of(const Items& items, const OptionRow& row) {
  if (!row.uses.path || items[0].empty() || items[0] == "synthetic") return join(items, ",");
  std::error_code error;
  const auto absolute = std::filesystem::absolute(items[0], error).lexically_normal();
  return error ? items[0] : absolute.string();
}

}  // namespace

std::string repeat_command(const Options& options, const ModelConfig& model, DataKind kind) {
  // Sizes and --augment are resolved first, since other defaults depend on them.
  const Options plain = resolve_options({}, model, kind);
  constexpr std::string_view deciding[] = {"image_size", "patch_size", "augment"};
  Request sizes;
  for (const std::string_view name : deciding) {
    const OptionRow& row = *find_option(name);
    const Items items = items_of(options, row);
    if (!items.empty() && items != items_of(plain, row)) sizes.line.values.emplace(name, items);
  }
  Options chosen = options;
  if (chosen.mean == model.mean) chosen.mean.reset();
  if (chosen.std == model.std) chosen.std.reset();
  const Options defaults = resolve_options(sizes, model, kind);
  std::vector<std::string> words = {own_command(), "train", model.name};
  if (options.nproc.value_or(1) > 1)
    words.insert(words.begin() + 2, {"-n", std::to_string(*options.nproc)});
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) {
      if (!row.uses.stored || std::ranges::count(left_out, row.name) > 0) continue;
      if (options.source(row.name) <= Source::resolved &&
          defaults.source(row.name) <= Source::resolved)
        continue;  // follows from the others, or from the machine
      const Items items = items_of(chosen, row);
      const bool decides = std::ranges::count(deciding, row.name) > 0;
      if (items.empty() || items == items_of(decides ? plain : defaults, row)) continue;
      if (row.is_flag() && items[0] != "true") continue;
      words.push_back(row.flag());
      if (!row.is_flag()) words.push_back(shell_word(value_of(items, row)));
    }
  return join(words, " ");
}

std::string continued_command(const std::string& before, const Options& options,
                              const std::string& stopped) {
  std::string changes;
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.uses.stored && row.uses.resume && options.source(row.name) >= Source::config &&
          (row.uses.kept || row.uses.recipe || row.name == "steps"))
        changes += " " + row.flag() + " " + join(items_of(options, row), ",");
  const std::string next = "\n" + own_command() + " --resume again";
  if (changes.empty()) return before;
  return before + (before.find(next) == before.npos ? stopped + " --out again" : "") + next +
         changes;
}

}  // namespace bv
