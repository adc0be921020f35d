#include "engine/weights/hub_names.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "base/text.h"
#include "engine/weights/public_weights.h"

namespace bv {
namespace {

bool is_address(const std::string& given) { return given.find("://") != given.npos; }

// The name without what hubs put around it: an address, a path in a repository, an extension.
std::string bare(std::string name) {
  for (const std::string_view before :
       {"hf-hub:", "hf_hub:", "https://", "http://", "www.", "huggingface.co/", "hf.co/",
        "download.pytorch.org/models/"})
    if (name.starts_with(before)) name.erase(0, before.size());
  for (const char* after : {"?", "/resolve/", "/blob/", "/tree/"})
    name.resize(std::min(name.size(), name.find(after)));
  while (name.ends_with('/')) name.pop_back();
  for (const std::string_view extension : {".pth", ".safetensors"})
    if (name.ends_with(extension)) name.resize(name.size() - extension.size());
  return name;
}

bool is_called(const std::string& known, const std::string& name) {
  return known == name || known.substr(known.find('/') + 1) == name;
}

std::string similar(const std::string& name, const std::vector<PublicWeights>& all) {
  constexpr size_t shown = 3;
  std::vector<std::string> names;
  for (const PublicWeights& w : all)
    if (w.name.find(name) != w.name.npos) names.push_back(w.name);
  if (names.empty()) return "";
  const size_t rest = names.size() - std::min(names.size(), shown);
  return "; public weights of similar names: " +
         join(std::span(names).first(names.size() - rest), ", ") +
         (rest ? " and " + std::to_string(rest) + " more (./launcher weights list)" : "");
}

}  // namespace

std::string advice_for_weights(const std::string& given) {
  const std::string name = bare(given);
  const std::vector<PublicWeights> all = public_weights();
  for (const PublicWeights& w : all)
    if (is_called(w.name, name) ||
        std::ranges::any_of(w.also, [&](const std::string& n) { return is_called(n, name); }))
      return "; did you mean " + w.name + "? ./launcher weights fetch " + w.name + " downloads it";
  if (is_address(given)) return "; it is an address: download the file and give its path";
  if (given.starts_with("hf-hub:") || given.starts_with("hf_hub:"))
    return "; download its model.safetensors and give that file's path (./launcher weights list "
           "has the names that can be given)";
  return name == given && name.size() > 3 && name.find('/') == name.npos ? similar(name, all) : "";
}

std::string weights_file_in(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors.index.json", "model.safetensors",
                           "pytorch_model.bin.index.json", "pytorch_model.bin"})
    if (const auto path = std::filesystem::path(folder) / name;
        std::filesystem::is_regular_file(path, error))
      return path;
  return "";
}

}  // namespace bv
