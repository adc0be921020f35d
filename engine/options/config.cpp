#include "engine/options/config.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "engine/options/augmentation.h"
#include "engine/options/weights_name.h"
#include "models/family.h"

namespace bv {

namespace {

// Two options for the same setting: setting one of them unsets the other.
struct Alternatives {
  std::string_view one, other;
  bool (*other_counts)(const Options&);
};
constexpr Alternatives alternatives[] = {
    {"batch", "local_batch", [](const Options& o) { return !o.batch; }},
    {"warmup_epochs", "warmup_steps", [](const Options& o) { return o.warmup_steps > 0; }}};

void refuse_both(const Values& values, const std::string& where) {
  for (const auto& [one, other, other_counts] : alternatives) {
    if (!values.contains(one) || !values.contains(other)) continue;
    throw UserError(where + find_option(one)->flag() + " and " + find_option(other)->flag() +
                    " can't be used together");
  }
}

// Overwrites options with `values`, which were checked when read.
void overlay(Options& options, const Values& values, Source source) {
  for (const auto& [one, other, other_counts] : alternatives) {
    if (values.contains(one)) unset(options, other);
    if (values.contains(other)) unset(options, one);
  }
  for (const auto& [name, items] : values) {
    assign(options, *find_option(name), items, name);
    options.sources[name] = source;
  }
}

// Sets the options that the values' --augment implies, then the values themselves.
void overlay_with_presets(Options& options, const Values& values, Source source) {
  if (const auto augment = values.find("augment"); augment != values.end())
    for (const PresetRow& row : augment_presets()) {
      if (row.augment != augment->second[0]) continue;
      if (row.value.empty())
        unset(options, row.option);
      else
        overlay(options, {{std::string(row.option), {std::string(row.value)}}}, Source::recipe);
    }
  overlay(options, values, source);
}

Values read_config(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw UserError("--config " + path + ": a folder; give " + path + "/config.json");
  const Values values = parse_config(read_text_file(path), path);
  refuse_both(values, path + ": ");
  return values;
}

// Applies --recipe, then --config, then the command line.
void overlay_given(Options& options, const Request& request) {
  const NamedRecipe& recipe = request.recipe;
  overlay_with_presets(options, recipe.values, Source::named_recipe);
  if (!recipe.model.empty()) options.model = recipe.model;
  overlay_with_presets(options, request.config, Source::config);
  overlay_with_presets(options, request.line.values, Source::command_line);
  if (!recipe.model.empty() && options.model != recipe.model)
    throw UserError("--recipe " + recipe.name + " trains " + recipe.model + ", not " +
                    options.model + "; leave MODEL out");
  if (options.weights == "none") options.weights.clear();
}

struct DataDefaults {
  std::string_view recipe;
  int image_size = 0;  // 0: the model's
};
DataDefaults defaults_for(DataKind kind) {
  if (kind == DataKind::builtin) return {"recipe_builtin", 64};
  if (kind == DataKind::cifar) return {"recipe_cifar", 32};
  if (kind == DataKind::photos) return {"recipe_folder"};
  return {};
}

void resolve_patch_size(Options& options, const ModelConfig& model) {
  // The recipe for a data set of small images has small patches.
  const bool small_images = *options.image_size < model.image_size;
  if (!options.patch_size || (!small_images && options.source("patch_size") == Source::recipe)) {
    options.patch_size = model.patch_size;
    options.sources["patch_size"] = Source::resolved;
  }
  const int image = *options.image_size, patch = *options.patch_size;
  if (image % patch == 0) return;
  const int below = image / patch * patch;
  throw UserError("the image size " + std::to_string(image) +
                  " is not divisible by the patch size " + std::to_string(patch) +
                  "; --image-size " + (below > 0 ? std::to_string(below) + " or " : "") +
                  std::to_string(below + patch) + " would be");
}

// Stores relative paths as absolute ones: a run may be resumed from another folder.
Items stored_items(const Options& options, const OptionRow& row) {
  Items items = items_of(options, row);
  if (!row.uses.absolute || items[0].empty() || items[0] == "synthetic" ||
      (row.name == "weights" && names_public_weights(items[0])))
    return items;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(items[0], error).lexically_normal();
  return error ? items : Items{absolute.string()};
}

// A file contains only one of two options for the same setting, so that it can be given to
// --config.
bool is_redundant(const Options& options, const OptionRow& row) {
  return std::ranges::any_of(alternatives, [&](const Alternatives& two) {
    return row.name == (two.other_counts(options) ? two.one : two.other);
  });
}

std::string advice_to_start_anew(const std::string& folder) {
  const auto weights = std::filesystem::path(folder) / "last/weights.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(weights, error))
    return "start a new run with another --out (nothing to resume: " + folder +
           " has no checkpoint)";
  return "start a new run from --weights " + weights.string();
}

// An option's value from --recipe, --config or the command line; the last of these counts.
struct Given {
  Items items;
  Source source;
  std::string said;  // names it in a message
};
using AllGiven = std::map<std::string, Given>;
AllGiven all_given(const CommandLine& line) {
  AllGiven all;
  const auto add = [&all](const Values& values, Source source, const std::string& where) {
    for (const auto& [one, other, other_counts] : alternatives) {
      if (values.contains(one)) all.erase(std::string(other));
      if (values.contains(other)) all.erase(std::string(one));
    }
    for (const auto& [name, items] : values)
      all[name] = {items, source, where.empty() ? find_option(name)->flag() : where + name};
  };
  if (const auto named = line.values.find("recipe"); named != line.values.end()) {
    const NamedRecipe recipe = load_recipe(named->second[0]);
    const std::string where = "--recipe " + recipe.name + ": ";
    add(recipe.values, Source::named_recipe, where);
    if (!recipe.model.empty())
      all["model"] = {{recipe.model}, Source::named_recipe, where + "model"};
  }
  if (!line.config.empty()) add(read_config(line.config), Source::config, line.config + ": ");
  add(line.values, Source::command_line, "");
  if (const auto weights = all.find("weights");
      weights != all.end() && weights->second.items == Items{"none"})
    weights->second.items = {""};
  all.erase("out"), all.erase("recipe");  // the folder is known; `all` has the recipe's options
  return all;
}

// The local batch of a run, from --batch and the processes in its config.json; 0: not known.
int local_batch_of(const Options& saved) {
  const int replicas = saved.nproc.value_or(0) / saved.pipeline, batch = saved.batch.value_or(0);
  return replicas > 0 && batch % replicas == 0 ? batch / replicas : 0;
}

// Whether an option names a run's data, and nothing is there any more.
bool is_gone(const Options& saved, const OptionRow& row) {
  if (!row.uses.absolute || row.name == "weights") return false;
  const Items items = items_of(saved, row);
  return !items[0].empty() && items[0] != "synthetic" && !there_is(items[0]);
}

// Whether an option names the run's data at another place: resuming compares its fingerprint, names
// and sizes of files.
bool is_moved(const Options& saved, const OptionRow& row, const Items& given) {
  if (row.name != "data" && row.name != "val") return false;
  const auto is_path = [](const Items& items) {
    return !items[0].empty() && items[0] != "synthetic";
  };
  return is_path(items_of(saved, row)) && is_path(given) && there_is(given[0]);
}

// Refuses options that would change a resumed run's model, data or mathematics.
void refuse_changes(const Options& saved, const AllGiven& all, const std::string& folder) {
  for (const auto& [name, option] : all) {
    const OptionRow& row = *find_option(name);
    if (row.uses.resume || is_gone(saved, row) || is_moved(saved, row, option.items)) continue;
    Options given;
    assign(given, row, option.items, option.said);
    if (stored_items(given, row) == stored_items(saved, row)) continue;
    if (name == "local_batch" && *given.local_batch == local_batch_of(saved)) continue;
    const std::string own = join(items_of(saved, row), ",");
    throw UserError(
        option.said + " can't be changed with --resume: the run has " +
        (own.empty() ? "its own" : printable(own)) + "; leave it out, or " +
        (name == "model" ? "start a new run with another --out" : advice_to_start_anew(folder)));
  }
}

// The run's folder; an error names it if a checkpoint, or a file of one, is given instead.
std::filesystem::path checked_run(const std::filesystem::path& given) {
  namespace fs = std::filesystem;
  const std::string wrong = "--resume " + given.string() + ": ";
  if (!there_is(given))
    throw UserError(wrong + "no such folder; give a MODEL or --recipe, too, to start a run there");
  if (there_is(given / "config.json")) return given;
  throw UserError(wrong + "not a run folder, it has no config.json" + run_above(given));
}

}  // namespace

std::string run_above(const std::string& path) {
  std::filesystem::path above = std::filesystem::path(path).lexically_normal();
  for (int floor = 0; floor < 3; ++floor) {
    above = above.parent_path();
    if (!above.empty() && there_is(above / "config.json"))
      return "; " + above.string() + " is the run";
  }
  return "";
}

Values parse_config(std::string_view text, const std::string& path) {
  const Json object = parse_json_object(text, path);
  if (object.contains("family")) refuse_model_config(path);
  if (object.contains("description"))
    throw UserError(path + ": has a description, as recipes have: give it as --recipe " + path);
  Json options = Json::object();
  for (const auto& [key, value] : object.items())
    if (!key.starts_with("//") || !value.is_string()) options[key] = value;  // else a comment
  return values_from_json(options, path, OptionFile::config);
}

Request read_new_run(const CommandLine& line) {
  Request request{.line = line};
  request.line.values.erase("resume");
  NamedRecipe& recipe = request.recipe;
  if (const auto named = line.values.find("recipe"); named != line.values.end()) {
    recipe = load_recipe(named->second[0]);
    refuse_both(recipe.values, "--recipe " + recipe.name + ": ");
  }
  if (!line.config.empty()) request.config = read_config(line.config);
  refuse_both(line.values, "");
  Options& options = request.options;
  overlay_given(options, request);
  if (options.model.empty())
    throw UserError("no MODEL given: ./launcher " +
                    (line.command->name == "train" ? "" : std::string(line.command->name) + " ") +
                    "MODEL [options], or --recipe NAME; models: " + join(known_models(), ", "));
  const bool in_config = options.source("model") == Source::config;
  request.model = load_model_config(options.model, in_config ? line.config + ": " : "");
  return request;
}

void resolve_sizes(Options& options, const ModelConfig& model, DataKind kind) {
  if (!options.image_size) {
    const int native_size = defaults_for(kind).image_size;
    options.image_size = native_size > 0 ? native_size : model.image_size;
    options.sources["image_size"] = Source::resolved;
  }
  for (const auto& [name, lacks] : model.family->refused) {
    const OptionRow& row = *find_option(name);
    if (items_of(options, row) != items_of(Options(), row))
      throw UserError(row.flag() + ": " + model.name + " has no " + std::string(lacks));
  }
  model.family->check(model.sizes, graph_options(options), model.name, *options.image_size);
  if (model.family->patches) resolve_patch_size(options, model);
}

GraphOptions graph_options(const Options& o) {
  return {.representation_size = o.representation_size,
          .drop_rate = static_cast<float>(o.drop_rate),
          .pos_drop_rate = static_cast<float>(o.pos_drop_rate),
          .proj_drop_rate = static_cast<float>(o.proj_drop_rate),
          .attn_drop_rate = static_cast<float>(o.attn_drop_rate),
          .drop_path_rate = static_cast<float>(o.drop_path_rate),
          .label_smoothing = static_cast<float>(o.label_smoothing),
          .zero_init_last = o.zero_init_last};
}

Options resolve_options(const Request& request, const ModelConfig& model, DataKind kind) {
  Options options;
  for (const std::string_view section : {std::string_view("recipe"), defaults_for(kind).recipe}) {
    const auto recipe = model.recipes.find(section);
    if (recipe != model.recipes.end())
      overlay_with_presets(options, recipe->second, Source::recipe);
  }
  overlay_given(options, request);
  options.model = model.name;
  resolve_sizes(options, model, kind);
  resolve_augmentation(options, kind);
  return options;
}

std::string config_of(const std::string& folder) {
  return std::filesystem::path(folder) / "config.json";
}

void require_data_of_run(const Options& options) {
  for (const char* name : {"data", "val"}) {
    const OptionRow& row = *find_option(name);
    if (options.source(name) != Source::run || !is_gone(options, row)) continue;
    const std::string link = link_without_target(items_of(options, row)[0]);
    throw UserError(items_of(options, row)[0] + ": the run's " + row.flag() + " is " +
                    (link.empty() ? "not there any more" : link) + "; if it was moved, " +
                    row.flag() + " PATH says where to");
  }
}

Options options_of_run(const std::string& folder) {
  const std::string path = config_of(folder);
  Options options;
  options.left_over = LeftOver::drop, options.built_in = BuiltIn::mosaics;  // if it has neither
  // config.json has the options that --augment implied, unless it predates these options.
  const Values values = read_config(path);
  (values.contains("train_crop") ? overlay : overlay_with_presets)(options, values, Source::run);
  if (options.model.empty()) throw UserError(path + ": 'model' is missing");
  return options;
}

void set_from_command_line(Options& options, const CommandLine& line) {
  overlay(options, line.values, Source::command_line);
}

std::optional<std::string> folder_to_resume(const CommandLine& line) {
  const auto resume = line.values.find("resume");
  if (resume == line.values.end()) return {};
  const std::string& folder = resume->second[0];
  const auto out = line.values.find("out");
  if (folder != "auto") {
    if (out == line.values.end()) return folder;
    throw UserError("--resume " + folder + " and --out both name the run's folder; give only one");
  }
  if (out != line.values.end()) return out->second[0];
  if (!line.config.empty())
    if (const Values config = read_config(line.config); config.contains("out"))
      return config.at("out")[0];
  throw UserError("--resume auto needs --out DIR, the folder of the run to start or to resume");
}

bool names_model(const CommandLine& line) { return all_given(line).contains("model"); }

UserError with_place(const CommandLine& line, const UserError& error) {
  const std::string text = error.what();
  std::string name = text.substr(0, text.find_first_of(": "));
  if (!name.starts_with("--")) return error;
  name.erase(0, 2);
  std::ranges::replace(name, '-', '_');
  if (!find_option(name) || line.values.contains(name)) return error;
  if (!line.config.empty() && read_config(line.config).contains(name))
    return UserError(line.config + ": " + text);
  const auto named = line.values.find("recipe");
  if (named != line.values.end() && load_recipe(named->second[0]).values.contains(name))
    return UserError("--recipe " + named->second[0] + ": " + text);
  return error;
}

Request read_request(const CommandLine& line) {
  const std::optional<std::string> folder = folder_to_resume(line);
  if (!folder) return read_new_run(line);
  const AllGiven all = all_given(line);
  if (all.contains("model") && !there_is(*folder + "/config.json")) {
    CommandLine first = line;
    first.values["out"] = {*folder};
    return read_new_run(first);
  }
  Request request{.line = line, .options = options_of_run(checked_run(*folder))};
  Options& options = request.options;
  refuse_changes(options, all, *folder);
  // --epochs lifts the cap that --steps set in the earlier run.
  if (all.contains("epochs") && !all.contains("steps")) options.steps.reset();
  const std::optional<int> batch = options.batch;
  for (const auto& [name, given] : all)
    if (find_option(name)->uses.resume || given.source == Source::command_line)
      overlay(options, {{name, given.items}}, given.source);
  options.batch = batch;  // overlay() unsets it if --local-batch is given again
  options.resume = options.out = *folder;
  request.model = load_model_config(options.model, config_of(*folder) + ": ");
  require_data_of_run(options);
  return request;
}

// Leaves out paths, which may have moved; files and classes are compared by the data's fingerprint.
Values options_to_keep(const Options& options) {
  Values kept;
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.uses.kept && !is_redundant(options, row))
        kept.emplace(row.name, items_of(options, row));
  return kept;
}

void refuse_edits(const Options& options, const Values& kept) {
  const auto text = [](const Items& items) {
    return items.empty() ? "nothing" : printable(join(items, ","));
  };
  for (const auto& [name, now] : options_to_keep(options)) {
    const auto before = kept.find(name);
    if (find_option(name)->uses.resume || before == kept.end() || before->second == now) continue;
    throw UserError(options.out + "/config.json was edited: " + name + " was " +
                    text(before->second) + " and is " + text(now) + "; put it back, or " +
                    advice_to_start_anew(options.out));
  }
}

std::string config_to_json(const Options& options) {
  std::vector<std::string> lines;
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) {
      if (!row.uses.stored) continue;
      const Items items = is_redundant(options, row) ? Items{} : stored_items(options, row);
      lines.push_back("\n  " + to_line(row.name) + ": " + to_line(value_to_json(row, items)));
    }
  return "{" + join(lines, ",") + "\n}\n";
}

}  // namespace bv
