#include "engine/inference/prediction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

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

namespace {

void exchange_now(Backend& backend, Communicator& communicator,
                  const std::vector<Transfer>& transfers) {
  communicator.exchange(transfers, nullptr);
  backend.synchronize(nullptr);
}

void send_to_first(Backend& backend, Communicator& communicator, const void* data, size_t bytes) {
  if (bytes == 0) return;
  const DeviceMemory memory(backend, bytes);
  backend.to_device(memory.data(), data, bytes, nullptr);
  exchange_now(backend, communicator, {{memory.data(), bytes, 0, true}});
}

// From ranks 1, 2, ..., in this order, sizes[rank] bytes of each.
void receive_from_all(Backend& backend, Communicator& communicator, void* data,
                      const std::vector<size_t>& sizes) {
  const size_t bytes = std::accumulate(sizes.begin() + 1, sizes.end(), size_t{0});
  if (bytes == 0) return;
  const DeviceMemory memory(backend, bytes);
  std::vector<Transfer> transfers;
  size_t at = 0;
  for (size_t rank = 1; rank < sizes.size(); at += sizes[rank++])
    if (sizes[rank] > 0)
      transfers.push_back({memory.data() + at, sizes[rank], static_cast<int>(rank), false});
  exchange_now(backend, communicator, transfers);
  backend.to_host(data, memory.data(), bytes, nullptr);
  backend.synchronize(nullptr);
}

}  // namespace

std::vector<Prediction> gather(std::vector<Prediction> own, Backend& backend,
                               Communicator* communicator) {
  if (communicator && communicator->rank() > 0) {
    const size_t bytes = own.size() * sizeof(Prediction);
    send_to_first(backend, *communicator, &bytes, sizeof bytes);
    send_to_first(backend, *communicator, own.data(), bytes);
    return {};
  }
  if (communicator) {
    const auto ranks = static_cast<size_t>(communicator->size());
    std::vector<size_t> sizes(ranks);
    receive_from_all(backend, *communicator, &sizes[1],
                     std::vector<size_t>(ranks, sizeof sizes[0]));
    const size_t mine = own.size();
    own.resize(mine + std::accumulate(sizes.begin(), sizes.end(), size_t{0}) / sizeof(Prediction));
    receive_from_all(backend, *communicator, own.data() + mine, sizes);
  }
  std::erase_if(own, [](const Prediction& p) { return p.label < 0; });
  return own;
}

}  // namespace bv
