#include "engine/training/gradient_sync.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

namespace bv {
namespace {

// A replica's share of a bucket is a multiple of this number of elements.
size_t unit_of(const SyncOptions& o) {
  return o.zero ? GradientSquares::norm_block : OptimizerUpdate::decay_chunk;
}

std::vector<Bucket> buckets_of(const Graph& graph, const SyncOptions& o) {
  return gradient_buckets(graph, o.bucket_bytes, unit_of(o));
}

Shares shares_of(const Bucket& bucket, const SyncOptions& o, int replicas) {
  return {replicas, bucket.end - bucket.begin, unit_of(o)};
}

// Elements of the largest sum: a bucket or the buffers; batch norm's sums have no more than these.
size_t largest_sum(const Graph& graph, std::span<const Bucket> buckets) {
  size_t most = graph.buffer_count();
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.end - bucket.begin);
  return most;
}

}  // namespace

std::vector<Bucket> gradient_buckets(const Graph& graph, size_t max_bytes, size_t unit) {
  const auto elements = [unit](size_t bytes) {
    return std::max<size_t>(1, bytes / sizeof(float) / unit) * unit;
  };
  const size_t max = elements(max_bytes), first = std::min(max, elements(1 << 20));
  std::vector<Bucket> buckets;
  size_t begin = 0, end = 0;
  const auto extend = [&](size_t to) {
    const size_t limit = buckets.empty() ? first : max;
    const size_t cut = end / unit * unit;
    if (cut > begin && to - begin > limit) buckets.push_back({begin, cut}), begin = cut;
    for (; to - begin > max; begin += max) buckets.push_back({begin, begin + max});
    end = to;
  };
  for (size_t node = graph.nodes().size(); node-- > 0;)
    extend(graph.ready_after(static_cast<int>(node)));
  extend(graph.arena_count() + Parameters::tail);
  buckets.push_back({begin, end});
  return buckets;
}

std::vector<Segment> kept_segments(const Graph& graph, const SyncOptions& options, int replica,
                                   int replicas) {
  if (!options.zero || replicas == 1) return graph.segments();
  std::vector<Segment> kept;
  for (const Bucket& bucket : buckets_of(graph, options)) {
    const Shares shares =
        shares_of({bucket.begin, std::min(bucket.end, graph.arena_count())}, options, replicas);
    const size_t share_begin = bucket.begin + shares.begin(replica),
                 share_end = bucket.begin + shares.end(replica);
    for (const Segment& own : graph.segments()) {  // in a pipeline, one per chunk
      const size_t begin = std::max(share_begin, own.begin), end = std::min(share_end, own.end);
      const size_t block = own.norm_block + (begin - own.begin) / GradientSquares::norm_block;
      if (end > begin) kept.push_back({begin, end, block});
    }
  }
  return kept;
}

GradientSync::GradientSync(Backend& backend, Communicator* communicator,
                           const Parameters& parameters, const SyncOptions& options)
    : backend_(&backend),
      parameters_(&parameters),
      options_(options),
      buckets_(buckets_of(parameters.graph(), options)) {
  if (!communicator) return;
  replicas_ = communicator->size();
  std::vector<int> all(static_cast<size_t>(replicas_));
  std::iota(all.begin(), all.end(), 0);
  const int channels = std::min(options.channels, static_cast<int>(buckets_.size()));
  for (int i = 0; i < channels; ++i) {
    const int stream = options.first_stream + i;
    Channel channel = i == 0 ? Channel(backend, *communicator, stream)
                             : Channel(backend, communicator->group(all), stream);
    channels_.push_back({std::move(channel), nullptr});
    if (options.by_ordered_sum())
      channels_.back().ordered = std::make_unique<OrderedSum>(
          backend, channels_.back().channel.communicator(),
          largest_sum(parameters.graph(), buckets_), options.dtype, unit_of(options));
  }
}

size_t GradientSync::bytes(const Graph& graph, const SyncOptions& options, int replicas) {
  if (replicas == 1 || !options.by_ordered_sum()) return 0;
  const std::vector<Bucket> buckets = buckets_of(graph, options);
  return std::min(static_cast<size_t>(options.channels), buckets.size()) *
         OrderedSum::bytes(replicas, largest_sum(graph, buckets), options.dtype, unit_of(options));
}

void GradientSync::allocate() {
  for (const Summing& summing : channels_)
    if (summing.ordered) summing.ordered->allocate();
}

void GradientSync::sum_shards(float* first, size_t count, size_t stride, int shards,
                              Stream stream) const {
  if (shards > 1)
    backend_->kernels().run(SumParts{.out = first,
                                     .inp = first,
                                     .count = count,
                                     .stride = stride,
                                     .factor = 1,
                                     .parts = shards},
                            stream);
}

// gradients: `data` may be sent in 16 bits.
void GradientSync::sum_replicas(float* data, size_t count, bool gradients, const Summing& summing,
                                Stream stream) const {
  if (gradients && summing.ordered)
    summing.ordered->all_reduce(data, count, stream);
  else if (options_.ordered())
    summing.ordered->all_reduce_exact(data, count, stream);
  else
    summing.channel.communicator().all_reduce(data, count, stream);
}

void GradientSync::start() {
  next_bucket_ = 0;
  if (!averages_buffers()) return;
  const size_t count = parameters_->graph().buffer_count();
  const Stream stream = channels_.empty() ? nullptr : channels_[0].channel.fork();
  sum_shards(parameters_->buffers(), count, parameters_->buffer_stride(), options_.shards, stream);
  if (!channels_.empty()) sum_replicas(parameters_->buffers(), count, false, channels_[0], stream);
}

void GradientSync::reduce(size_t ready) {
  while (next_bucket_ < buckets_.size()) {
    const Bucket& bucket = buckets_[next_bucket_];
    if (std::min(bucket.end, parameters_->graph().arena_count()) > ready) return;
    ++next_bucket_;
    if (channels_.empty()) {
      reduce(bucket, nullptr, nullptr);
      continue;
    }
    const Work work = options_.zero ? Work::reduce_scatter : Work::all_reduce;
    const size_t number = (next_bucket_ - 1) % channels_.size();
    const Stream stream = channels_[number].channel.fork();
    traced(trace_, stream, {work, static_cast<int>(number) + 1},
           [&] { reduce(bucket, &channels_[number], stream); });
    if (next_bucket_ == buckets_.size())
      for (const Summing& used : channels_) used.channel.join();
  }
}

// The tail is always summed in fp32 and on all replicas, as it contains counts.
void GradientSync::reduce(const Bucket& bucket, const Summing* summing, Stream stream) const {
  const auto [begin, end] = bucket;
  float* const data = parameters_->grads() + begin;
  sum_shards(data, end - begin, parameters_->gradient_stride(), options_.shards, stream);
  if (!summing) return;
  const size_t arena = parameters_->graph().arena_count(),
               cut = options_.dtype == DType::fp32 && !options_.zero
                         ? end
                         : std::clamp(arena, begin, end);
  if (cut > begin && options_.zero)
    summing->ordered->reduce_scatter(data, cut - begin, stream);
  else if (cut > begin)
    sum_replicas(data, cut - begin, true, *summing, stream);
  if (cut < end) sum_replicas(parameters_->grads() + cut, end - cut, false, *summing, stream);
}

void GradientSync::average_buffers() {
  if (!averages_buffers()) return;
  const size_t count = parameters_->graph().buffer_count();
  const int shards = std::max(options_.shards, 1);
  float* const first = parameters_->buffers();
  backend_->kernels().run(SumParts{.out = first,
                                   .inp = first,
                                   .count = count,
                                   .factor = 1 / static_cast<float>(replicas_ * shards),
                                   .parts = 1},
                          nullptr);
  for (int shard = 1; shard < shards; ++shard)
    backend_->copy(parameters_->buffers(shard), first, count * sizeof(float), nullptr);
}

template <class PiecesOf>
void GradientSync::gather(const PiecesOf& pieces) const {
  const size_t count = parameters_->graph().arena_count();
  for (const Summing& used : channels_) used.channel.fork();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto [begin, end] = buckets_[i];
    if (begin >= count) continue;
    const Summing& summing = channels_[i % channels_.size()];
    const Stream stream = summing.channel.stream();
    traced(trace_, stream, {Work::all_gather, static_cast<int>(i % channels_.size()) + 1}, [&] {
      summing.ordered->all_gather(pieces(Bucket{begin, std::min(end, count)}), stream);
    });
  }
  for (const Summing& used : channels_) used.channel.join();
}

void GradientSync::all_gather(float* arena) const {
  gather([&](const Bucket& bucket) {
    return std::array{
        pieces_of(arena + bucket.begin, DType::fp32, shares_of(bucket, options_, replicas_))};
  });
}

void GradientSync::share_weights(float* masters) const {
  if (parameters_->keeps_all_weights()) {
    all_gather(masters);
    parameters_->round(masters);
    return;
  }
  const Graph& graph = parameters_->graph();
  parameters_->copy_fp32(masters);
  gather([&](const Bucket& bucket) {
    const Shares shares = shares_of(bucket, options_, replicas_);
    Pieces fp32{reinterpret_cast<char*>(parameters_->fp32_weights()), {}};
    for (int rank = 0; rank <= replicas_; ++rank)
      fp32.at.push_back(graph.fp32_count(bucket.begin + shares.begin(rank)) * sizeof(float));
    auto* const rounded = static_cast<uint16_t*>(parameters_->compute_weights());
    return std::array{pieces_of(rounded + bucket.begin, graph.dtype(), shares), std::move(fp32)};
  });
}

void GradientSync::spread(float* data, size_t count, Together together) const {
  for (int slot = 1; slot < together.slots; ++slot)
    backend_->copy(reinterpret_cast<char*>(data) + static_cast<size_t>(slot) * together.stride,
                   data, count * sizeof(float), nullptr);
}

void GradientSync::all_reduce(float* data, size_t count, Together together) const {
  sum_shards(data, count, together.stride / sizeof(float), together.slots, nullptr);
  if (!channels_.empty()) {
    sum_replicas(data, count, false, channels_[0], channels_[0].channel.fork());
    channels_[0].channel.join();
  }
  spread(data, count, together);
}

void GradientSync::all_gather(float* data, size_t count, Together together) const {
  const auto slots = static_cast<size_t>(together.slots);
  for (size_t slot = 1; slot < slots; ++slot) {
    const size_t row = (static_cast<size_t>(rank()) * slots + slot) * count * sizeof(float);
    char* const to = reinterpret_cast<char*>(data) + row;
    backend_->copy(to, to + slot * together.stride, count * sizeof(float), nullptr);
  }
  if (!channels_.empty()) {
    const Channel& channel = channels_[0].channel;
    channel.communicator().all_gather(data, slots * count, channel.fork());
    channel.join();
  }
  spread(data, static_cast<size_t>(replicas_) * slots * count, together);
}

}  // namespace bv
