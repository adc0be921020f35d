#include "engine/options/config.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace bv {

namespace {

// Two ways to say one thing: giving one of them, where it wins, takes the other back.
constexpr std::string_view alternatives[][2] = {{"batch", "local_batch"},
                                                {"warmup_epochs", "warmup_steps"}};

Items items_from_json(const JsonValue& value, const OptionRow& row, const std::string& subject) {
  using Kind = JsonValue::Kind;
  const auto expect = [&](bool fits, const char* what) {
    if (!fits) throw UserError(subject + ": must be " + what);
  };
  if (row.is_list()) {
    if (row.name == "classes" && value.kind == Kind::number) return {value.text};
    expect(value.kind == Kind::list, "a list");
    Items items;
    const Kind kind = row.name == "classes" ? Kind::text : Kind::number;
    for (const JsonValue& item : value.items) {
      expect(item.kind == kind, kind == Kind::text ? "a list of names" : "a list of numbers");
      items.push_back(item.text);
    }
    return items;
  }
  if (row.is_flag()) {
    expect(value.kind == Kind::boolean, "true or false");
  } else if (row.is_text()) {
    const bool count = row.name == "save_every" && value.kind == Kind::number;
    expect(count || value.kind == Kind::text, "text in quotes");
  } else {
    expect(value.kind == Kind::number, "a number");
  }
  return {value.text};
}

const OptionRow& known_option(const std::string& key, const std::string& where, bool recipe) {
  const OptionRow* row = find_option(key);
  if (row == nullptr) {
    throw UserError(where + ": unknown key '" + printable(key) + "'" +
                    suggestion(key, option_names()));
  }
  if (recipe && !row->recipe) {
    throw UserError(where + ": '" + key + "' can't be part of a recipe");
  }
  return *row;
}

}  // namespace

Values values_from_json(const JsonValue& object, const std::string& where, bool recipe) {
  Values values;
  Options scratch;
  for (const auto& [key, value] : object.members) {
    const OptionRow& row = known_option(key, where, recipe);
    if (row.name == "resume") throw UserError(where + ": 'resume' can't be part of a config");
    if (value.kind == JsonValue::Kind::null) continue;  // not set
    const std::string text = value.text.empty() ? "" : " " + printable(value.text);
    const std::string subject = where + ": '" + key + "'" + text;
    const Items items = items_from_json(value, row, subject);
    assign(scratch, row, items, subject);
    values.emplace(key, items);
  }
  return values;
}

Values parse_config(std::string_view text, const std::string& path) {
  return values_from_json(parse_json_object(text, path), path, false);
}

namespace {

void unset(Options& options, std::string_view name) {
  const Options fresh;
  std::visit([&](auto member) { options.*member = fresh.*member; }, find_option(name)->member);
  options.sources.erase(std::string(name));
}

void refuse_both(const Values& values, const std::string& where) {
  for (const auto& [one, other] : alternatives) {
    if (!values.contains(one) || !values.contains(other)) continue;
    throw UserError(where + find_option(one)->flag() + " and " + find_option(other)->flag() +
                    " exclude each other");
  }
}

// `values` win over what is set so far. They were checked where they were read.
void overlay(Options& options, const Values& values, Source source) {
  for (const auto& [one, other] : alternatives) {
    if (values.contains(one)) unset(options, other);
    if (values.contains(other)) unset(options, one);
  }
  for (const auto& [name, items] : values) {
    assign(options, *find_option(name), items, name);
    options.sources[name] = source;
  }
}

Values read_config(const std::string& path) {
  const Values values = parse_config(read_text_file(path), path);
  refuse_both(values, path + ": ");
  return values;
}

void overlay_given(Options& options, const CommandLine& line) {
  if (!line.config.empty()) {
    overlay(options, read_config(line.config), Source::config);
  }
  refuse_both(line.values, "");
  overlay(options, line.values, Source::command_line);
}

std::string_view recipe_section(DataKind kind) {
  switch (kind) {
    case DataKind::builtin:
      return "recipe_builtin";
    case DataKind::cifar:
      return "recipe_cifar";
    case DataKind::photos:
      return "recipe_folder";
    case DataKind::synthetic:
      break;
  }
  return "";
}

int native_size(DataKind kind) {
  return kind == DataKind::cifar ? 32 : kind == DataKind::builtin ? 64 : 0;
}

// What is a ViT's alone, and what a ResNet needs of its images.
void check_resnet(const Options& options, const std::string& model) {
  const auto refuse = [&](const char* option, const char* lacks) {
    throw UserError(find_option(option)->flag() + ": " + model + " has no " + lacks);
  };
  if (options.patch_size) refuse("patch_size", "patches");
  if (options.attn_drop_rate > 0) refuse("attn_drop_rate", "attention");
  if (options.drop_path_rate > 0) refuse("drop_path_rate", "stochastic depth");
  constexpr int stem = 7;
  if (*options.image_size < stem)
    throw UserError("the image size " + std::to_string(*options.image_size) +
                    " is smaller than the first convolution's filter of " + std::to_string(stem) +
                    " x " + std::to_string(stem) + "; --image-size 32 would do");
}

void resolve_sizes(Options& options, const ModelConfig& model, DataKind kind) {
  if (!options.image_size) {
    options.image_size = native_size(kind) > 0 ? native_size(kind) : model.image_size;
    options.sources["image_size"] = Source::resolved;
  }
  if (model.is_resnet()) return check_resnet(options, model.name);
  for (const auto& [name, given] :
       {std::pair{"sync_bn", options.sync_bn}, {"zero_init_last", options.zero_init_last}})
    if (given)
      throw UserError(find_option(name)->flag() + ": " + model.name + " has no batch norm");
  if (!options.patch_size) {
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

}  // namespace

Options preliminary_options(const CommandLine& line) {
  Options options;
  overlay_given(options, line);
  if (options.model.empty()) {
    throw UserError("no MODEL given: ./launcher MODEL [options]; there are " +
                    join(known_models(), ", "));
  }
  return options;
}

Options resolve_options(const CommandLine& line, const ModelConfig& model, DataKind kind) {
  Options options;
  for (const std::string_view section : {std::string_view("recipe"), recipe_section(kind)}) {
    const auto recipe = model.recipes.find(section);
    if (recipe != model.recipes.end()) overlay(options, recipe->second, Source::recipe);
  }
  overlay_given(options, line);
  options.model = model.name;
  resolve_sizes(options, model, kind);
  return options;
}

namespace {

// Paths outlast the folder that the program was started in.
std::string absolute_path(const std::string& path) {
  if (path.empty() || path == "synthetic") return path;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error).lexically_normal();
  return error ? path : absolute.string();
}

bool is_path(const OptionRow& row) { return row.name == "data" || row.name == "weights"; }

Items stored_items(const Options& options, const OptionRow& row) {
  Items items = items_of(options, row);
  if (is_path(row)) items[0] = absolute_path(items[0]);
  return items;
}

// What would change the model, the data or the mathematics of a run.
void refuse_changes(const Options& saved, const CommandLine& line, const std::string& folder) {
  if (!line.config.empty()) {
    throw UserError("--config can't be given with --resume: the run has its own config.json");
  }
  for (const auto& [name, items] : line.values) {
    const OptionRow& row = *find_option(name);
    if (row.resume) continue;
    Options given;
    assign(given, row, items, row.flag());
    if (stored_items(given, row) == stored_items(saved, row)) continue;
    const std::string own = join(items_of(saved, row), ",");
    throw UserError(row.flag() + " can't be given anew with --resume: the run has " +
                    (own.empty() ? "its own" : printable(own)) +
                    "; leave it out, or start a new run from --weights " +
                    (std::filesystem::path(folder) / "last/weights.safetensors").string());
  }
}

}  // namespace

Options resumed_options(const CommandLine& line) {
  Options asked;
  overlay(asked, line.values, Source::command_line);
  const std::filesystem::path folder = asked.resume;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw UserError("--resume " + asked.resume + ": there is no such folder");
  }
  const std::string path = folder / "config.json";
  if (!std::filesystem::exists(path, error)) {
    throw UserError("--resume " + asked.resume + ": not a run folder, it has no config.json");
  }
  Options options;
  overlay(options, read_config(path), Source::run);
  if (options.model.empty()) throw UserError(path + ": 'model' is missing");
  refuse_changes(options, line, asked.resume);
  // A longer run isn't held back by the cap of the shorter one.
  if (line.values.contains("epochs") && !line.values.contains("steps")) options.steps.reset();
  overlay(options, line.values, Source::command_line);
  options.out = asked.resume;
  return options;
}

Options initial_options(const CommandLine& line) {
  return line.values.contains("resume") ? resumed_options(line) : preliminary_options(line);
}

namespace {

std::string json_text(const OptionRow& row, const Items& items) {
  if (items.empty()) return row.name == "classes" ? "[]" : "null";
  const bool names = row.name == "classes" && items.size() > 1;
  const auto item_text = [&](const std::string& item) {
    return row.is_text() || names ? quote_json(item) : item;
  };
  if (!row.is_list() || (row.name == "classes" && !names)) return item_text(items[0]);
  std::string text = "[";
  for (const std::string& item : items) {
    text += (text.size() > 1 ? ", " : "") + item_text(item);
  }
  return text + "]";
}

// Of two ways to say one thing a file holds one, so that it can be read as a person's --config.
bool given_otherwise(const Options& options, const OptionRow& row) {
  return (row.name == "local_batch" && options.batch) ||
         (row.name == "warmup_epochs" && options.warmup_steps > 0) ||
         (row.name == "warmup_steps" && options.warmup_steps == 0);
}

}  // namespace

std::string config_to_json(const Options& options) {
  std::string text;
  for (const OptionGroup& group : option_groups()) {
    for (const OptionRow& row : group.rows) {
      if (!row.stored) continue;
      Items items = stored_items(options, row);
      if (given_otherwise(options, row)) items.clear();
      text +=
          (text.empty() ? "{\n  " : ",\n  ") + quote_json(row.name) + ": " + json_text(row, items);
    }
  }
  return text + "\n}\n";
}

}  // namespace bv
