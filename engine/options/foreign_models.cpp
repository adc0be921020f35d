#include "engine/options/foreign_models.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "base/json.h"
#include "engine/options/model_config.h"

// The assembler embeds the table; mk/compile.mk makes this object depend on it. It has how names of
// models begin that are missing here (the longest match counts; some begin like our models' names:
// resnet18d) and their millions of parameters.
asm(R"(
  .section .rodata
foreign_models_begin:
  .incbin "engine/options/foreign_models.json"
  .byte 0
  .text
)");

extern "C" const char foreign_models_begin[];

namespace bv {
namespace {

// "304 M" from a description with "304 M parameters"; else empty.
std::string parameters_of(const ModelConfig& model) {
  static const std::regex form(R"(([0-9.]+ M) parameters)");
  std::smatch part;
  return std::regex_search(model.description, part, form) ? part[1].str() : "";
}

// "resnet" of "resnet50"
std::string_view kin_of(std::string_view name) {
  return name.substr(0, name.find_first_of("_0123456789"));
}

// Two of our models of the same kind, nearest in size; those with the same family name first.
std::string nearest_in_size(const std::string& theirs, double millions) {
  const bool transformer = theirs.find("it_") != theirs.npos || theirs.starts_with("deit3") ||
                           theirs.starts_with("swin") || theirs.starts_with("mixer");
  struct Ours {
    bool other_name;
    double distance;
    std::string text;
  };
  std::vector<Ours> ours;
  for (const std::string& name : known_models()) {
    const ModelConfig model = load_model_config(name);
    const std::string size = parameters_of(model);
    if (size.empty() || name.ends_with("_distilled") || (model.patch_size > 0) != transformer)
      continue;
    ours.push_back({kin_of(name) != kin_of(theirs), std::abs(std::log(std::stod(size) / millions)),
                    name + " (" + size + ")"});
  }
  std::ranges::sort(ours, {}, [](const Ours& o) { return std::pair(o.other_name, o.distance); });
  ours.resize(std::min<size_t>(ours.size(), 2));
  std::string text;
  for (const Ours& o : ours) text += (text.empty() ? "; nearest: " : ", ") + o.text;
  return text;
}

std::string advice_for_missing_model(const std::string& name) {
  static const Json models = parse_json_object(foreign_models_begin, "foreign_models.json");
  std::string theirs;
  for (const auto& [beginning, millions] : models.items())
    if (name.starts_with(beginning) && beginning.size() > theirs.size()) theirs = beginning;
  if (theirs.empty()) return "";
  return ": not in barevision" + nearest_in_size(theirs, models[theirs]);
}

}  // namespace

std::string advice_for_foreign_model(const std::string& name) {
  static const std::regex form(
      R"((?:hf[-_]hub:)?(?:timm/)?((\w+?)(?:_patch(\d{1,4})_(\d{1,4}))?(\.\w+)?))");
  std::smatch part;
  const std::vector<std::string> ours = known_models();
  if (name.size() > 100 || !std::regex_match(name, part, form)) return "";
  std::string same = part[2];
  static const std::regex short_form("vit_([tsblh])_([0-9]{2})");  // torchvision's vit_b_16
  if (std::smatch parts; std::regex_match(name, parts, short_form)) {
    const std::string sizes[] = {"tiny", "small", "base", "large", "huge"};
    return advice_for_foreign_model("vit_" + sizes[std::string_view("tsblh").find(name[4])] +
                                    "_patch" + parts.str(2) + "_224");
  }
  if (same.starts_with("deit_")) same.replace(0, 4, "vit");  // the same model
  if (std::ranges::find(ours, same) == ours.end()) return advice_for_missing_model(same);
  const ModelConfig model = load_model_config(same);
  std::string text = ": use " + model.name;
  if (part[3].matched) {
    const std::string flags = "--patch-size " + part[3].str() + " --image-size " + part[4].str();
    const bool defaults =
        part[3] == std::to_string(model.patch_size) && part[4] == std::to_string(model.image_size);
    text += defaults ? " (" + flags + " are its defaults)" : " " + flags;
  }
  if (part[5].matched)
    text += "; its weights: --weights timm/" + part[1].str() +
            " if ./launcher weights list has it, " +
            "or FILE, the model.safetensors of huggingface.co/timm/" + part[1].str();
  return text;
}

}  // namespace bv
