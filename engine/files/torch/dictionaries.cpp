#include "engine/files/torch/dictionaries.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "base/files/file.h"
#include "base/text.h"

namespace bv {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t longest_key = 100, usual_depth = 2, deepest = 8;

bool is_text(const PickleValue& value) { return value.kind == Kind::text; }

class Search {
 public:
  Search(const Pickle& pickle, size_t depth) : pickle_(pickle), depth_(depth) {
    visit(pickle.root(), {});
  }
  std::vector<Dictionary> found;

 private:
  // Visits no dictionary twice: a file may refer to one a million times.
  void visit(const PickleValue& value, const std::vector<std::string_view>& keys) {
    if (value.kind != Kind::dict || !visited_.insert(&value).second) return;
    Dictionary here{.value = &value, .keys = keys};
    for (size_t i = 0; i + 1 < value.items.size(); i += 2)
      here.tensors +=
          is_text(pickle_.item(value, i)) && stands_for_tensor(pickle_.item(value, i + 1));
    if (here.tensors > 0) found.push_back(here);
    if (keys.size() == depth_) return;
    for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const PickleValue &key = pickle_.item(value, i), &inner = pickle_.item(value, i + 1);
      if (!is_text(key) || key.bytes.empty() || key.bytes.size() > longest_key) continue;
      if (inner.kind != Kind::dict) continue;
      std::vector<std::string_view> below = keys;
      below.push_back(key.bytes);
      visit(inner, below);
    }
  }

  const Pickle& pickle_;
  const size_t depth_;
  std::unordered_set<const PickleValue*> visited_;
};

void count_matches(const Pickle& pickle, const std::vector<ParameterShape>& model,
                   Dictionary& dictionary) {
  PrefixVotes votes(model);
  std::vector<int64_t> shape;
  const PickleValue& all = *dictionary.value;
  for (size_t i = 0; i + 1 < all.items.size(); i += 2) {
    const PickleValue &key = pickle.item(all, i), &tensor = pickle.item(all, i + 1);
    if (!is_text(key) || tensor.kind != Kind::tensor) continue;
    shape.clear();
    for (const uint32_t size : pickle.item(tensor, TensorItems::sizes).items)
      shape.push_back(pickle.values()[size].number);
    votes.add(key.bytes, shape);
  }
  if (const auto best = votes.best(); !best.empty())
    dictionary.names = best[0].names, dictionary.shapes = best[0].shapes;
}

// The usual names of a model's own weights come before others, and these before averages: which of
// two equal ones is meant can't be told from the tensors.
int rank_of_name(const Dictionary& d) {
  constexpr std::string_view usual[] = {"state_dict", "model",   "model_state_dict", "net",
                                        "module",     "weights", "params",           "network"};
  const bool is_usual = !d.keys.empty() && std::ranges::count(usual, d.keys.back());
  if (is_usual && d.keys.size() == 1) return 3;
  if (d.key().find("ema") != std::string::npos) return 0;
  return is_usual ? 2 : 1;
}

auto rank(const Dictionary& d) {
  const bool state_dict = d.key() == "state_dict";
  return std::tuple(d.shapes, d.names, rank_of_name(d), state_dict, d.tensors);
}

std::string description(const Dictionary& d) {
  const std::string tensors = counted(static_cast<int64_t>(d.tensors), "tensor");
  return d.keys.empty() ? tensors + " beside them" : printable(d.key()) + " (" + tensors + ")";
}

std::vector<std::string> descriptions(const std::vector<Dictionary>& all) {
  std::vector<std::string> texts;
  for (const Dictionary& d : all)
    if (!d.keys.empty()) texts.push_back(description(d));
  if (all[0].keys.empty()) texts.push_back(description(all[0]));
  constexpr size_t most = 6;
  if (texts.size() <= most) return texts;
  const std::string rest = std::to_string(texts.size() - most) + " more";
  texts.resize(most);
  texts.push_back(rest);
  return texts;
}

[[noreturn]] void refuse_without_tensors(const Pickle& pickle) {
  const PickleValue& root = pickle.root();
  const std::string end = std::string("; ") + torch_kind.advice;
  if (root.kind == Kind::object)
    throw FileError("an object of " + pickle.name_of_object(root) + ", not a state dict" + end);
  if (root.kind == Kind::dict)
    for (size_t i = 0; i + 1 < root.items.size(); i += 2)
      if (const PickleValue& value = pickle.item(root, i + 1);
          value.kind == Kind::object && is_text(pickle.item(root, i)))
        throw FileError("no state dict: it has no named tensors; its " +
                        printable(pickle.item(root, i).bytes) + " is an object of " +
                        pickle.name_of_object(value) + end);
  throw FileError("no state dict: it has no named tensors");
}

}  // namespace

std::string Dictionary::key() const {
  std::string all;
  for (const std::string_view key : keys) all += (all.empty() ? "" : ".") + std::string(key);
  return all;
}

bool stands_for_tensor(const PickleValue& value) {
  return value.kind == Kind::tensor || (value.kind == Kind::object && value.of_tensor);
}

ChosenDictionary choose_dictionary(const Pickle& pickle, const std::string& key,
                                   const ListParameters& model) {
  std::vector<Dictionary> all = Search(pickle, usual_depth).found;
  if (all.empty()) all = Search(pickle, deepest).found;
  if (all.empty()) refuse_without_tensors(pickle);
  if (all.size() == 1) return {.taken = all[0], .also = {}, .found = {}};
  ChosenDictionary chosen{.taken = {}, .also = {}, .found = descriptions(all)};
  if (!key.empty())
    for (const Dictionary& d : all)
      if (d.key() == key) {
        chosen.taken = d;
        return chosen;
      }
  if (const auto parameters = model ? model() : std::vector<ParameterShape>(); !parameters.empty())
    for (Dictionary& d : all) count_matches(pickle, parameters, d);
  const Dictionary* best = &all[0];
  for (const Dictionary& d : all)
    if (rank(d) > rank(*best)) best = &d;
  chosen.taken = *best;
  for (const Dictionary& d : all)
    if (&d != best && d.shapes > 0 && d.shapes == best->shapes && d.names == best->names &&
        !d.key().empty())
      chosen.also.push_back(d.key());
  return chosen;
}

}  // namespace bv
