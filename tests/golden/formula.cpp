#include "tests/golden/formula.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "kernels/philox.h"

namespace bv::test::golden {
namespace {

constexpr int projection_count = 4, sample_count = 16;

uint64_t key_of(std::string_view name) {
  uint64_t key = 0xCBF29CE484222325u;
  for (const char c : name) key = (key ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return key;
}

// Calls use(i, word) for the first `count` words of a name.
template <class Use>
void for_words(std::string_view name, size_t count, Use use) {
  const uint64_t key = key_of(name);
  for (size_t i = 0; i < count; i += 4) {
    const uint64_t counter = i / 4;
    const Philox4 words =
        philox(key, static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0);
    for (size_t k = 0; k < 4 && i + k < count; ++k) use(i + k, words.at[k]);
  }
}

float to_signed(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8) - (1 << 23)) * 0x1p-23f;
}

size_t element_count(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1},
                         [](size_t n, int64_t d) { return n * static_cast<size_t>(d); });
}

struct Affine {
  float centre, scale;
};

Affine affine_of(std::string_view name, std::span<const int64_t> shape) {
  if (name == "cls_token" || name == "dist_token" || name == "pos_embed") return {0, 0.5f};
  if (name.ends_with(".bn2.weight") || name.ends_with(".bn3.weight")) return {0.25f, 0.0625f};
  if (shape.size() == 1)
    return name.ends_with("weight") || name.ends_with("running_var") ? Affine{1, 0.25f}
                                                                     : Affine{0, 0.125f};
  const size_t fan_in = element_count(shape.subspan(1));
  float scale = 1;
  for (size_t bound = 12; bound <= fan_in; bound *= 4) scale /= 2;
  return {0, scale};
}

nlohmann::json read_json(const std::string& name) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / (name + ".json");
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open golden file " + path.string());
  return nlohmann::json::parse(file);
}

template <class T>
std::vector<T> list(const nlohmann::json& json) {
  return json.get<std::vector<T>>();
}

std::map<std::string, GoldenTensor> read_tensors(const nlohmann::json& json) {
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, t] : json.items())
    tensors[name] = {.shape = list<int64_t>(t.at("shape")),
                     .summary = {.norm = t.at("norm"),
                                 .max = t.at("max"),
                                 .projections = list<double>(t.at("projections")),
                                 .samples = list<double>(t.at("samples"))},
                     .float32_error = t.value("float32_error", 0.0)};
  return tensors;
}

OptimizerState read_state(const nlohmann::json& json) {
  OptimizerState state{.weight = list<double>(json.at("weight")), .m = {}, .v = {}};
  if (json.contains("m")) state.m = list<double>(json["m"]);
  if (json.contains("v")) state.v = list<double>(json["v"]);
  return state;
}

OptimizerCase read_case(const nlohmann::json& json) {
  OptimizerCase c{
      .name = json.at("name"),
      .kind = json.at("kind"),
      .momentum = json.at("momentum"),
      .beta1 = json.at("betas").at(0),
      .beta2 = json.at("betas").at(1),
      .eps = json.at("eps"),
      .weight_decay = json.at("weight_decay"),
      .clip = json.at("clip"),
      .nesterov = json.at("nesterov"),
      .grad_norms = list<double>(json.at("grad_norms")),
      .after = {},
  };
  for (const auto& step : json.at("after")) {
    auto& states = c.after.emplace_back();
    for (const auto& [name, state] : step.items()) states[name] = read_state(state);
  }
  return c;
}

}  // namespace

std::vector<float> signed_values(std::string_view name, size_t count) {
  std::vector<float> values(count);
  for_words(name, count, [&](size_t i, uint32_t word) { values[i] = to_signed(word); });
  return values;
}

std::vector<float> parameter(std::string_view name, std::span<const int64_t> shape) {
  const auto [centre, scale] = affine_of(name, shape);
  std::vector<float> values = signed_values(name, element_count(shape));
  for (float& v : values) v = centre + scale * v;
  return values;
}

std::vector<uint8_t> images(int batch, int size) {
  std::vector<uint8_t> pixels(size_t(batch) * size * size * 3);
  for_words("images", pixels.size(),
            [&](size_t i, uint32_t word) { pixels[i] = static_cast<uint8_t>(word >> 24); });
  return pixels;
}

std::vector<int32_t> labels(int batch, int classes) {
  std::vector<int32_t> labels(batch);
  for (int b = 0; b < batch; ++b) labels[b] = 7 * b % classes;
  return labels;
}

std::vector<size_t> sample_indices(std::string_view name, size_t count) {
  std::vector<size_t> indices(sample_count);
  for_words(std::string(name) + "/sample", indices.size(),
            [&](size_t i, uint32_t word) { indices[i] = word % count; });
  return indices;
}

Summary summarize(std::string_view name, std::span<const float> values) {
  Summary s{};
  for (const float v : values) {
    s.norm += double(v) * v;
    // Compared in this order, a NaN replaces the maximum and stays.
    if (!(std::abs(v) <= s.max)) s.max = std::isnan(s.max) ? s.max : std::abs(v);
  }
  s.norm = std::sqrt(s.norm);
  for (int k = 0; k < projection_count; ++k) {
    double sum = 0;
    for_words(std::string(name) + "/projection" + std::to_string(k), values.size(),
              [&](size_t i, uint32_t word) { sum += double(to_signed(word)) * values[i]; });
    s.projections.push_back(sum);
  }
  for (const size_t i : sample_indices(name, values.size())) s.samples.push_back(values[i]);
  return s;
}

std::string difference(const Summary& got, const Summary& want, double tolerance) {
  std::ostringstream lines;
  const auto check = [&](const std::string& what, double g, double w, double unit) {
    if (std::abs(g - w) <= tolerance * unit) return;
    lines << what << " " << g << ", expected " << w << ", off by "
          << std::abs(g - w) / unit / tolerance << " tolerances\n";
  };
  if (got.projections.size() != want.projections.size() ||
      got.samples.size() != want.samples.size())
    return "other numbers of projections or samples\n";
  check("norm", got.norm, want.norm, want.norm);
  check("max", got.max, want.max, want.max);
  for (size_t k = 0; k < want.projections.size(); ++k)
    check("projection " + std::to_string(k), got.projections[k], want.projections[k], want.norm);
  for (size_t k = 0; k < want.samples.size(); ++k)
    check("sample " + std::to_string(k), got.samples[k], want.samples[k], want.max);
  return lines.str();
}

Model read_model(const std::string& name) {
  const nlohmann::json json = read_json(name);
  nlohmann::json sizes = nlohmann::json::object();
  for (const char* key : {"depth", "layers"})
    if (json.contains(key)) sizes[key] = json[key];
  Model model{
      .model = json.at("model"),
      .image_size = json.at("image_size"),
      .patch_size = json.value("patch_size", 0),
      .classes = json.at("classes"),
      .batch = json.at("batch"),
      .sizes = sizes.dump(),
      .options = {.classes = json.at("classes"),
                  .representation_size = json.value("representation_size", 0),
                  .drop_rate = json.value("drop_rate", 0.0f),
                  .pos_drop_rate = json.value("pos_drop_rate", 0.0f),
                  .proj_drop_rate = json.value("proj_drop_rate", 0.0f),
                  .attn_drop_rate = json.value("attn_drop_rate", 0.0f),
                  .drop_path_rate = json.value("drop_path_rate", 0.0f)},
      .seed = json.value("seed", 0u),
      .epoch = json.value("epoch", 0u),
      .position = json.value("position", 0u),
      .parameters = json.at("parameters"),
      .loss = json.at("loss"),
      .logits = list<double>(json.at("logits")),
      .heads = json.value("heads", std::vector<double>{}),
      .evaluation_logits = json.value("evaluation_logits", std::vector<double>{}),
      .gradients = read_tensors(json.at("gradients")),
      .buffers = {},
  };
  if (json.contains("statistics")) model.buffers = read_tensors(json["statistics"]);
  return model;
}

Optimizers read_optimizers() {
  const nlohmann::json json = read_json("optimizer");
  Optimizers all{.lr = list<double>(json.at("lr")),
                 .gradient_scales = list<double>(json.at("gradient_scales")),
                 .tensors = {},
                 .cases = {}};
  for (const auto& tensor : json.at("tensors"))
    all.tensors.emplace_back(tensor.at("name"), list<int64_t>(tensor.at("shape")));
  for (const auto& c : json.at("cases")) all.cases.push_back(read_case(c));
  return all;
}

FormulaChecks read_formula_checks() {
  const nlohmann::json json = read_json("formula");
  FormulaChecks all{.pixels = list<int>(json.at("pixels")), .parameters = {}};
  for (const auto& check : json.at("parameters"))
    all.parameters.push_back({.name = check.at("name"),
                              .shape = list<int64_t>(check.at("shape")),
                              .indices = list<size_t>(check.at("indices")),
                              .samples = list<size_t>(check.at("samples")),
                              .values = list<float>(check.at("values")),
                              .projections = list<double>(check.at("projections"))});
  return all;
}

}  // namespace bv::test::golden
