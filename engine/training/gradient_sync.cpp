#include "engine/training/gradient_sync.h"

#include <algorithm>
#include <numeric>

namespace bv {

std::vector<Bucket> gradient_buckets(const Graph& graph, size_t max_bytes) {
  constexpr size_t unit = OptimizerUpdate::decay_chunk;  // alignment of parameters
  const auto elements = [](size_t bytes) {
    return std::max<size_t>(1, bytes / sizeof(float) / unit) * unit;
  };
  const size_t max = elements(max_bytes), first = std::min(max, elements(1 << 20));
  std::vector<Bucket> buckets;
  size_t begin = 0, end = 0;
  const auto extend = [&](size_t to) {
    const size_t limit = buckets.empty() ? first : max;
    if (end > begin && to - begin > limit) buckets.push_back({begin, end}), begin = end;
    for (; to - begin > max; begin += max) buckets.push_back({begin, begin + max});
    end = to;
  };
  for (size_t node = graph.nodes().size(); node-- > 0;)
    extend(graph.ready_after(static_cast<int>(node)));
  extend(graph.arena_count() + Parameters::tail);
  buckets.push_back({begin, end});
  return buckets;
}

GradientSync::GradientSync(Backend& backend, Communicator& communicator,
                           const Parameters& parameters, const SyncOptions& options)
    : backend_(&backend),
      parameters_(&parameters),
      options_(options),
      buckets_(gradient_buckets(parameters.graph(), options.bucket_bytes)) {
  std::vector<int> all(static_cast<size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  const int channels = std::min(options.channels, static_cast<int>(buckets_.size()));
  for (int i = 0; i < channels; ++i) {
    const int stream = options.first_stream + i;
    if (i == 0)
      channels_.emplace_back(backend, communicator, stream);
    else
      channels_.emplace_back(backend, communicator.group(all), stream);
  }
}

void GradientSync::start() {
  next_bucket_ = 0;
  if (averages_buffers())
    channels_[0].communicator().all_reduce(
        parameters_->buffers(), parameters_->graph().buffer_count(), channels_[0].fork());
}

void GradientSync::reduce(size_t ready) {
  while (next_bucket_ < buckets_.size()) {
    const auto [begin, end] = buckets_[next_bucket_];
    if (std::min(end, parameters_->graph().arena_count()) > ready) return;
    const size_t number = next_bucket_ % channels_.size();
    const Channel& channel = channels_[number];
    const Stream stream = channel.fork();
    traced(trace_, stream, {Work::all_reduce, static_cast<int>(number) + 1}, [&] {
      channel.communicator().all_reduce(parameters_->grads() + begin, end - begin, stream);
    });
    if (++next_bucket_ == buckets_.size())
      for (const Channel& used : channels_) used.join();
  }
}

void GradientSync::average_buffers() {
  if (!averages_buffers()) return;
  const int replicas = channels_[0].communicator().size();
  backend_->kernels().run(Scale{.data = parameters_->buffers(),
                                .count = parameters_->graph().buffer_count(),
                                .factor = 1 / static_cast<float>(replicas)},
                          nullptr);
}

void GradientSync::all_reduce(float* data, size_t count) const {
  channels_[0].communicator().all_reduce(data, count, channels_[0].fork());
  channels_[0].join();
}

void GradientSync::all_gather(float* data, size_t count) const {
  channels_[0].communicator().all_gather(data, count, channels_[0].fork());
  channels_[0].join();
}

}  // namespace bv
