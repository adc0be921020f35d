// Initial values of the parameters: counter-based random numbers, keyed by seed and name.
#include <cmath>
#include <numbers>

#include "engine/model/parameters.h"
#include "kernels/philox.h"

namespace bv {
namespace {

uint32_t fnv1a(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// Uniform in (0, 1], so that the logarithm is finite.
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
      } else {  // Box and Muller 1958: two numbers from two words
        const double u = open_uniform(words.at[j / 2 * 2]),
                     angle = 2 * std::numbers::pi * open_uniform(words.at[j / 2 * 2 + 1]);
        const double radius = std::sqrt(-2 * std::log(u));
        to[i + j] =
            static_cast<float>(p.scale * radius * (j % 2 ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
}

}  // namespace

void Parameters::initialise(uint64_t seed) {
  Tensors values;
  for (const Infos* infos : {&graph_->parameters(), &graph_->buffers()})
    for (const ParameterInfo& p : *infos) {
      if (!p.owned()) continue;
      HostTensor t{p.shape, std::vector<float>(p.count(), p.init == Init::ones ? 1.0f : 0.0f)};
      if (p.init == Init::normal || p.init == Init::uniform) draw(p, seed, t.data.data());
      values.emplace(p.name, std::move(t));
    }
  set_weights(values);
}

}  // namespace bv
