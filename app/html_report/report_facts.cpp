#include "app/html_report/report_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "app/html_report/data_uri.h"
#include "app/html_report/repeat.h"
#include "base/error.h"
#include "engine/run/augmented.h"

namespace bv {
namespace {

constexpr int version = 1;
constexpr size_t max_mistakes = 16, max_tensors = 500;
constexpr int max_training = 8, thumbnail = 96;  // pixels

Json scratch_of(const Run& run) {
  struct Tensor {
    std::string name;
    size_t offset, bytes;
    Life life;
  };
  std::vector<Tensor> tensors;
  const ModelChunk& chunk = run.trainer.largest_chunk();
  const Layout& layout = chunk.layout();
  for (size_t s = 0; s < layout.places.size(); ++s) {
    const Layout::Place& place = layout.places[s];
    if (place.kind != Layout::Place::scratch) continue;
    for (const Life& life : place.live_ranges)
      tensors.push_back({chunk.graph().tensors()[s].name, place.offset, place.bytes, life});
  }
  std::ranges::stable_sort(tensors, std::greater{}, &Tensor::bytes);
  if (tensors.size() > max_tensors) tensors.resize(max_tensors);
  Json list = Json::array();
  for (const Tensor& t : tensors)
    list.push_back({t.name, t.offset, t.bytes, t.life.first, t.life.last});
  return list;
}

Json memory_of(const MemoryPlan& plan) {
  Json parts = Json::array();
  for (const auto& [name, bytes] : {std::pair{"weights", plan.weights},
                                    {"gradients", plan.gradients},
                                    {"optimizer state", plan.optimizer},
                                    {"moving average of weights", plan.ema},
                                    {"16-bit copy of weights", plan.compute_weights},
                                    {"saved activations", plan.activations},
                                    {"scratch", plan.scratch},
                                    {"batches", plan.batches},
                                    {"checkpoints, on the host", plan.checkpoints}})
    if (bytes > 0) parts.push_back({name, bytes});
  return parts;
}

// The name relative to the data's folder, if it is a path.
std::string short_name(const Run& run, const std::string& name) {
  const std::string root = run.setup.options.data + "/";
  return name.starts_with(root) ? name.substr(root.size()) : name;
}

Json mistake_of(const Run& run, const Prediction& p) {
  const Dataset& images = *run.setup.data.val;
  std::string picture;
  try {
    picture = data_uri(images.image(p.index, thumbnail), thumbnail);
  } catch (const std::runtime_error&) {  // the file was removed after the evaluation
  }
  return {short_name(run, images.name(p.index)), p.label, p.top, json_number(p.probability, 9),
          picture};
}

// Members and their forms: t is text, n a number, p a number or null (NaN), k a count, c the index
// of a class. "*" before one letter is a list of such values, before several a list of rows with
// one value per letter.
struct Member {
  const char *key, *form;
};
constexpr Member members[] = {{"model", "t"},         {"data", "t"},
                              {"device", "t"},        {"command", "t"},
                              {"written", "t"},       {"ending", "t"},
                              {"parameters", "n"},    {"processes", "n"},
                              {"steps_end", "n"},     {"updates_per_epoch", "n"},
                              {"forward_nodes", "n"}, {"classes", "*t"},
                              {"memory", "*tn"},      {"seconds", "*tn"},
                              {"scratch", "*tnnnn"},  {"training_pictures", "*t"}};
constexpr Member evaluation_members[] = {
    {"step", "n"}, {"epoch", "n"}, {"images", "*cck"}, {"mistakes", "*tccpt"}};

constexpr size_t max_images = 1 << 30;

class FactsCheck {
 public:
  FactsCheck(const Json& facts, const std::string& path) : facts_(facts), path_(path) {}

  void run() {
    if (facts_.value("version", Json()) != version)
      fail("its version is not " + std::to_string(version));
    check(facts_, members);
    classes_ = facts_["classes"].size();
    for (const char* key : {"evaluated", "best"})
      if (const Json evaluation = facts_.value(key, Json()); !evaluation.is_null())
        check(evaluation, evaluation_members);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + ": " + what + "; remove it to get a page without it");
  }
  void check(const Json& object, std::span<const Member> wanted) const {
    for (const auto& [key, form] : wanted) {
      const std::string name = "'" + std::string(key) + "'";
      const auto value = object.find(key);
      if (value == object.end()) fail(name + " is missing");
      if (form[0] != '*') {
        if (!fits(*value, form))
          fail(name + (form[0] == 't' ? " is not text" : " is not a number"));
        continue;
      }
      if (!value->is_array()) fail(name + " is not a list");
      for (const Json& row : *value)
        if (!fits(row, form + 1))
          fail(name + (form[2] ? " has a malformed row" : " is not a list of strings"));
    }
  }
  bool fits(const Json& value, std::string_view form) const {
    if (form.size() > 1)
      return value.is_array() && value.size() == form.size() &&
             std::ranges::equal(value, form, [&](const Json& cell, const char& letter) {
               return fits(cell, {&letter, 1});
             });
    if (form == "t") return value.is_string();
    if (form == "n" || form == "p") return value.is_number() || (form == "p" && value.is_null());
    return value.is_number_unsigned() && value < (form == "c" ? classes_ : max_images);
  }

  const Json& facts_;
  const std::string& path_;
  size_t classes_ = 0;
};

}  // namespace

Json facts_of(const Run& run) {
  const Setup& s = run.setup;
  return {{"version", version},
          {"model", s.model.name},
          {"data", description_without(s.bad_images, s.data)},
          {"device", run.backend.describe()},
          {"command", repeat_command(s.options, s.model, s.data.kind)},
          {"written", ""},
          {"ending", ""},
          {"parameters", s.graph.parameter_count()},
          {"processes", s.world},
          {"updates_per_epoch", run.updates_per_epoch},
          {"steps_end", run.end},
          {"forward_nodes", s.graph.nodes().size()},
          {"classes", s.data.classes},
          {"memory", memory_of(run.trainer.plan())},
          {"seconds", Json::array()},
          {"scratch", scratch_of(run)},
          {"evaluated", nullptr},
          {"best", nullptr},
          {"training_pictures", Json::array()}};
}

Json evaluated_of(const Run& run, bool averaged) {
  const std::vector<Prediction>& predictions = run.trainer.predictions();
  std::map<std::pair<int, int>, int64_t> counts;
  for (const Prediction& p : predictions) ++counts[{p.label, p.top}];
  Json images = Json::array(), mistakes = Json::array();
  for (const auto& [pair, count] : counts) images.push_back({pair.first, pair.second, count});
  for (const Prediction& p : surest_mistakes(predictions, max_mistakes))
    mistakes.push_back(mistake_of(run, p));
  return {{"step", run.progress.step},
          {"epoch", 0},
          {"averaged", averaged},
          {"images", images},
          {"mistakes", mistakes}};
}

Json training_pictures_of(const Run& run) {
  const int size = *run.setup.options.image_size;
  const int count = std::min(max_training, *run.setup.options.local_batch / 2 * 2);
  Json pictures = Json::array();
  if (count == 0) return pictures;
  const std::vector<uint8_t> pixels = first_training_images(run.backend, run.setup, count);
  const auto bytes = static_cast<ptrdiff_t>(pixels.size()) / count;
  for (auto first = pixels.begin(); first != pixels.end(); first += bytes)
    pictures.push_back(data_uri({size, size, {first, first + bytes}}, thumbnail));
  return pictures;
}

Json parse_facts(const std::string& text, const std::string& path) {
  Json facts = parse_json_object(text, path);
  FactsCheck(facts, path).run();
  return facts;
}

}  // namespace bv
