#include "engine/training/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "engine/base/error.h"
#include "engine/training/half.h"
#include "engine/training/memory.h"
#include "kernels/philox.h"

namespace bv {
namespace {

uint32_t fnv1a(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// Uniform in (0, 1]: fit for a logarithm.
double open_uniform(uint32_t word) { return (static_cast<double>(word) + 1) * 0x1p-32; }

void draw(const ParameterInfo& p, uint64_t seed, float* to) {
  const size_t count = p.count();
  const uint32_t name = fnv1a(p.name);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < count; i += 4) {
    const Philox4 words = philox(seed, static_cast<uint32_t>(i / 4), name, 0, random_init);
    for (size_t j = 0; j < 4 && i + j < count; ++j) {
      if (p.init == Init::uniform) {
        to[i + j] = p.scale * (2 * uniform(words.at[j]) - 1);
      } else {  // Box and Muller 1958, two numbers of a pair of words
        const double u = open_uniform(words.at[j / 2 * 2]),
                     angle = 2 * std::numbers::pi * open_uniform(words.at[j / 2 * 2 + 1]);
        const double radius = std::sqrt(-2 * std::log(u));
        to[i + j] =
            static_cast<float>(p.scale * radius * (j % 2 ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
}

// [K, C, positions] as [K, positions, C], and by the other sizes back again.
std::vector<float> turned(const std::vector<float>& from, size_t K, size_t C, size_t positions) {
  std::vector<float> to(from.size());
#pragma omp parallel for schedule(static)
  for (size_t k = 0; k < K; ++k)
    for (size_t c = 0; c < C; ++c)
      for (size_t p = 0; p < positions; ++p)
        to[(k * positions + p) * C + c] = from[(k * C + c) * positions + p];
  return to;
}

struct Turn {
  size_t K, C, positions;
  explicit Turn(const ParameterInfo& p)
      : K(static_cast<size_t>(p.shape[0])),
        C(static_cast<size_t>(p.shape[1])),
        positions(static_cast<size_t>(p.shape[2] * p.shape[3])) {}
};
std::vector<float> as_in_memory(const ParameterInfo& p, const std::vector<float>& file) {
  if (!p.channels_last) return file;
  const Turn turn(p);
  return turned(file, turn.K, turn.C, turn.positions);
}
std::vector<float> as_in_files(const ParameterInfo& p, std::vector<float> memory) {
  if (!p.channels_last) return memory;
  const Turn turn(p);
  return turned(memory, turn.K, turn.positions, turn.C);
}

}  // namespace

Parameters::Parameters(Backend& backend, const Graph& graph, Needs needs)
    : backend_(&backend), graph_(&graph), needs_(needs) {}

size_t Parameters::optimizer_bytes() const {
  return weight_bytes() * (size_t{needs_.first_moment} + size_t{needs_.second_moment});
}
size_t Parameters::compute_weights_bytes() const {
  return graph_->dtype() == DType::fp32 ? 0 : graph_->arena_count() * size_of(graph_->dtype());
}

void Parameters::allocate() {
  const auto zeroed = [this](size_t bytes) { return zeroed_memory(*backend_, bytes); };
  // Zeroed, so that the padding between parameters stays zero for ever.
  weights_ = zeroed(weight_bytes());
  compute_weights_ = zeroed(compute_weights_bytes());
  grads_ = zeroed(gradient_bytes());
  buffers_ = zeroed(buffer_bytes());
  if (needs_.first_moment) m_ = zeroed(weight_bytes());
  if (needs_.second_moment) v_ = zeroed(weight_bytes());
}

void Parameters::initialise(uint64_t seed) {
  std::map<std::string, HostTensor> values;
  for (const Infos* infos : {&graph_->parameters(), &graph_->buffers()})
    for (const ParameterInfo& p : *infos) {
      HostTensor t{p.shape, std::vector<float>(p.count(), p.init == Init::ones ? 1.0f : 0.0f)};
      if (p.init == Init::normal || p.init == Init::uniform) draw(p, seed, t.data.data());
      values.emplace(p.name, std::move(t));
    }
  set_weights(values);
}

void Parameters::set_weights(const std::map<std::string, HostTensor>& values) {
  upload(weights(), graph_->parameters(), values, "");
  upload(buffers(), graph_->buffers(), values, "");
  if (graph_->dtype() != DType::fp32) upload_copy(values);
}

std::map<std::string, HostTensor> Parameters::get_weights() const {
  auto values = download(weights(), graph_->parameters(), "");
  values.merge(download(buffers(), graph_->buffers(), ""));
  return values;
}

std::map<std::string, HostTensor> Parameters::get_gradients() const {
  return download(grads(), graph_->parameters(), "");
}

void Parameters::upload_copy(const std::map<std::string, HostTensor>& values) const {
  auto* copy = compute_weights_.data<uint16_t>();
  std::vector<uint16_t> rounded;
  for (const ParameterInfo& p : graph_->parameters()) {
    const auto found = values.find(p.name);
    if (found == values.end()) continue;
    const std::vector<float> data = as_in_memory(p, found->second.data);
    rounded.resize(data.size());
    std::transform(data.begin(), data.end(), rounded.begin(),
                   [&](float x) { return to_half(x, graph_->dtype()); });
    backend_->to_device(copy + p.offset, rounded.data(), rounded.size() * sizeof(uint16_t),
                        nullptr);
    backend_->synchronize(nullptr);
  }
}

void Parameters::set_moments(const std::map<std::string, HostTensor>& values) {
  for (const auto& [prefix, arena] : {std::pair{"m.", m()}, {"v.", v()}}) {
    if (!arena) continue;
    for (const ParameterInfo& p : graph_->parameters())
      if (!values.contains(prefix + p.name))
        throw UserError("checkpoint: the optimizer's state lacks '" + (prefix + p.name) +
                        "'; it was saved by another optimizer");
    upload(arena, graph_->parameters(), values, prefix);
  }
}

std::map<std::string, HostTensor> Parameters::get_moments() const {
  std::map<std::string, HostTensor> all;
  if (m()) all = download(m(), graph_->parameters(), "m.");
  if (v()) all.merge(download(v(), graph_->parameters(), "v."));
  return all;
}

void Parameters::upload(float* arena, const Infos& infos,
                        const std::map<std::string, HostTensor>& values,
                        const std::string& prefix) const {
  for (const ParameterInfo& p : infos) {
    const auto found = values.find(prefix + p.name);
    if (found == values.end()) continue;
    if (found->second.data.size() != p.count())
      throw UserError(prefix + p.name + ": another number of elements");
    const std::vector<float> data = as_in_memory(p, found->second.data);
    backend_->to_device(arena + p.offset, data.data(), data.size() * sizeof(float), nullptr);
    backend_->synchronize(nullptr);
  }
}

std::map<std::string, HostTensor> Parameters::download(const float* arena, const Infos& infos,
                                                       const std::string& prefix) const {
  std::map<std::string, HostTensor> values;
  for (const ParameterInfo& p : infos) {
    HostTensor& t = values[prefix + p.name];
    t = {p.shape, std::vector<float>(p.count())};
    backend_->to_host(t.data.data(), arena + p.offset, p.count() * sizeof(float), nullptr);
    backend_->synchronize(nullptr);
    t.data = as_in_files(p, std::move(t.data));
  }
  return values;
}

std::string Parameters::first_not_finite(bool weight) const {
  const auto values = weight ? get_weights() : get_gradients();
  for (const ParameterInfo& p : graph_->parameters())  // the model's order
    for (const float x : values.at(p.name).data)
      if (!std::isfinite(x)) return p.name;
  return "";
}

std::vector<uint8_t> decay_flags(const Graph& graph, bool all) {
  constexpr size_t chunk = OptimizerUpdate::decay_chunk;
  std::vector<uint8_t> flags(graph.arena_count() / chunk, 0);
  for (const ParameterInfo& p : graph.parameters())
    if (all || p.decay)
      std::memset(flags.data() + p.offset / chunk, 1, (p.count() + chunk - 1) / chunk);
  return flags;
}

}  // namespace bv
