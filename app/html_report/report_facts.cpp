#include "app/html_report/report_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>

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
  } catch (const BadImage&) {  // the file was removed after the evaluation
  }
  return {short_name(run, images.name(p.index)), p.label, p.top, json_number(p.probability, 9),
          picture};
}

class FactsCheck {
 public:
  FactsCheck(const Json& facts, const std::string& path) : facts_(facts), path_(path) {}

  void run() const {
    if (facts_.value("version", Json()) != version)
      fail("its version is not " + std::to_string(version));
    for (const char* key : {"model", "data", "device", "command", "written", "ending"})
      require(facts_, key, "text");
    for (const char* key :
         {"parameters", "processes", "updates_per_epoch", "steps_end", "forward_nodes"})
      require(facts_, key, "a number");
    require_rows(facts_, "memory", "tn");
    require_rows(facts_, "seconds", "tn");
    require_rows(facts_, "scratch", "tnnnn");
    for (const char* key : {"classes", "training_pictures"})
      for (const Json& item : require(facts_, key, "a list"))
        if (!item.is_string()) fail("'" + std::string(key) + "' is not a list of texts");
    for (const char* key : {"evaluated", "best"})
      if (const Json evaluation = facts_.value(key, Json()); !evaluation.is_null()) {
        for (const char* number : {"step", "epoch"}) require(evaluation, number, "a number");
        require_rows(evaluation, "images", "ccn");
        require_rows(evaluation, "mistakes", "tccnt");
      }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + ": " + what + "; remove it for a page without its part");
  }
  const Json& require(const Json& object, const std::string& key, std::string_view kind) const {
    const auto value = object.find(key);
    if (value == object.end()) fail("'" + key + "' is missing");
    if (kind_of(*value) != kind) fail("'" + key + "' is not " + std::string(kind));
    return *value;
  }
  // A letter of `form` for each value in a row: t text, n a count or number, c a class's index.
  void require_rows(const Json& object, const std::string& key, std::string_view form) const {
    const size_t classes = facts_["classes"].size();
    for (const Json& row : require(object, key, "a list")) {
      bool good = row.is_array() && row.size() == form.size();
      for (size_t i = 0; good && i < form.size(); ++i)
        good = form[i] == 't'   ? row[i].is_string()
               : form[i] == 'n' ? row[i].is_number()
                                : row[i].is_number_unsigned() && row[i].get<size_t>() < classes;
      if (!good) fail("'" + key + "' has a row of another form");
    }
  }

  const Json& facts_;
  const std::string& path_;
};

}  // namespace

Json facts_of(const Run& run) {
  const Setup& s = run.setup;
  return {{"version", version},
          {"model", s.model.name},
          {"data", s.data.description},
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
