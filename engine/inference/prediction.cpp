#include "engine/inference/prediction.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "comm/processes/collect.h"

namespace bv {

std::vector<Prediction> surest_mistakes(std::span<const Prediction> predictions, size_t most) {
  std::vector<Prediction> wrong;
  for (const Prediction& p : predictions)
    if (p.label != p.top) wrong.push_back(p);
  std::ranges::stable_sort(wrong, std::greater{}, &Prediction::probability);
  if (wrong.size() > most) wrong.resize(most);
  return wrong;
}

int32_t top_class(std::span<const float> logits) {
  const auto below = [](float a, float b) { return a < b || (std::isnan(a) && !std::isnan(b)); };
  return static_cast<int32_t>(std::ranges::max_element(logits, below) - logits.begin());
}

std::vector<double> softmax(std::span<const float> logits) {
  const double max = logits[static_cast<size_t>(top_class(logits))];
  std::vector<double> out;
  double sum = 0;
  for (const float logit : logits) sum += out.emplace_back(std::exp(logit - max));
  for (double& p : out) p /= sum;
  return out;
}

std::vector<Prediction> gather(std::vector<Prediction> own, Backend& backend,
                               Communicator* communicator) {
  const auto all = collect(std::as_bytes(std::span(own)), backend, communicator);
  own.clear();
  for (const auto& bytes : all) {
    const size_t before = own.size();
    own.resize(before + bytes.size() / sizeof(Prediction));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(own).subspan(before)).begin());
  }
  std::erase_if(own, [](const Prediction& p) { return p.label < 0; });
  return own;
}

}  // namespace bv
