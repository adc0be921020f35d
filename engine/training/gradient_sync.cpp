#include "engine/training/gradient_sync.h"

#include <algorithm>

namespace bv {

std::vector<Bucket> gradient_buckets(const Graph& graph, size_t max_bytes) {
  constexpr size_t unit = OptimizerUpdate::decay_chunk;  // where parameters begin
  const size_t max = std::max<size_t>(1, max_bytes / sizeof(float) / unit) * unit;
  std::vector<Bucket> buckets;
  size_t begin = 0, end = 0;
  const auto extend = [&](size_t to) {
    if (end > begin && to - begin > max) buckets.push_back({begin, end}), begin = end;
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
                           const Parameters& parameters, size_t max_bucket_bytes,
                           bool sync_batchnorm)
    : backend_(&backend),
      communicator_(&communicator),
      parameters_(&parameters),
      sync_batchnorm_(sync_batchnorm),
      buckets_(gradient_buckets(parameters.graph(), max_bucket_bytes)),
      forked_(backend.create_event()),
      joined_(backend.create_event()) {}

Stream GradientSync::fork() const {
  const Stream stream = backend_->communication_stream();
  backend_->record(forked_, nullptr);
  backend_->wait(stream, forked_);
  return stream;
}

void GradientSync::join() const {
  backend_->record(joined_, backend_->communication_stream());
  backend_->wait(nullptr, joined_);
}

void GradientSync::start() {
  next_bucket_ = 0;
  if (averages_buffers())
    communicator_->all_reduce(parameters_->buffers(), parameters_->graph().buffer_count(), fork());
}

void GradientSync::reduce(size_t ready) {
  while (next_bucket_ < buckets_.size()) {
    const auto [begin, end] = buckets_[next_bucket_];
    if (std::min(end, parameters_->graph().arena_count()) > ready) return;
    communicator_->all_reduce(parameters_->grads() + begin, end - begin, fork());
    if (++next_bucket_ == buckets_.size()) join();
  }
}

void GradientSync::average_buffers() {
  if (!averages_buffers()) return;
  backend_->kernels().run(Scale{.data = parameters_->buffers(),
                                .count = parameters_->graph().buffer_count(),
                                .factor = 1 / static_cast<float>(communicator_->size())},
                          nullptr);
}

void GradientSync::all_reduce(float* data, size_t count) const {
  communicator_->all_reduce(data, count, fork());
  join();
}

void GradientSync::all_gather(float* data, size_t count) const {
  communicator_->all_gather(data, count, fork());
  join();
}

}  // namespace bv
