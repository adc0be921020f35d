// Sums gradients over the shards of this process's batches and over the replicas of a model, bucket
// by bucket while backward continues, on one or more channels: each channel has a stream and a
// communicator of its own. Every process issues the same collectives in the same order on each
// channel, and each bucket is summed separately, so the number of channels doesn't change the bits
// of the result. With --shards, all sums are made in one tree over all shards (SumParts), so
// neither does the number of processes.
#pragma once
#include <memory>
#include <vector>

#include "engine/model/channel.h"
#include "engine/model/parameters.h"
#include "engine/trace/trace.h"
#include "engine/training/ordered_sum.h"

namespace bv {

// A range of the gradient arena and its tail that is reduced as one message.
struct Bucket {
  size_t begin, end;
};

struct SyncOptions {
  size_t bucket_bytes;          // largest bucket
  int channels = 1;             // --comm-streams
  int first_stream = 0;         // communication stream of the first channel
  bool sync_batchnorm = false;  // computes statistics over all replicas' batches
  int shards = 0;               // of this process (--shards); 0: sums have no fixed order
  DType dtype = DType::fp32;    // --reduce-dtype
  bool zero = false;            // --zero 1: each replica keeps a part of the update's state
  bool ordered() const { return shards > 0; }
  // Gradients are summed by OrderedSum, not by the communicator.
  bool by_ordered_sum() const { return ordered() || zero || dtype != DType::fp32; }
};

// Contiguous buckets over arena and tail, in the order in which backward finishes the gradients.
// None exceeds max_bytes (but 64 elements are always allowed): a bucket closes before the node
// whose parameters would exceed the maximum, and larger nodes are cut at multiples of 64 elements.
// The first bucket's maximum is 1 MiB, unless its first node is larger, so that reduction starts
// early, as in PyTorch's DDP. The tail counts as another node. unit: replaces 64; buckets end at
// multiples of it.
std::vector<Bucket> gradient_buckets(const Graph&, size_t max_bytes,
                                     size_t unit = OptimizerUpdate::decay_chunk);

// The parts of the gradient whose sum a replica receives, and whose moments and average it keeps:
// with --zero 1 its share of each bucket in whole norm blocks, as in ZeRO's stage 1 (Rajbhandari et
// al. 2020), else all.
std::vector<Segment> kept_segments(const Graph&, const SyncOptions&, int replica, int replicas);

// Through its Peers interface, batch norm computes statistics over the batches of all replicas.
class GradientSync final : public Peers {
 public:
  // Collective if there are several channels. Null communicator: one replica, in shards.
  GradientSync(Backend&, Communicator*, const Parameters&, const SyncOptions&);
  // Device memory in addition to the parameters'.
  static size_t bytes(const Graph&, const SyncOptions&, int replicas);
  void allocate();
  const Peers* peers() const { return options_.sync_batchnorm ? this : nullptr; }
  size_t bucket_count() const { return buckets_.size(); }
  void trace(Trace* to) { trace_ = to; }

  // For an update's last micro-step: call start() before its backward, and reduce() whenever the
  // first `ready` gradients are final. After the last bucket, stream 0 waits for all sums.
  void start();
  void reduce(size_t ready);
  // For the update: turns the sum of the running statistics, made by start(), into their mean.
  void average_buffers();
  // --zero 1 with several replicas: each has only the sums of its kept segments.
  bool in_parts() const { return options_.zero && replicas_ > 1; }
  const Channel& channel() const { return channels_[0].channel; }  // connects the replicas
  // Sends each replica's segments of an arena to all others. Stream 0 waits for the exchange.
  void all_gather(float* arena) const;
  // Sends each replica's segments of the weights to all others. With keeps_all_weights() these are
  // the fp32 master weights, which are then rounded; otherwise the 16-bit copy, whose kept segments
  // are rounded already, and fp32_weights(). masters: weights(), or ema() to evaluate the average.
  void share_weights(float* masters) const;

  int rank() const override {
    return replicas_ > 1 ? channels_[0].channel.communicator().rank() : 0;
  }
  void all_reduce(float* data, size_t count, Together) const override;
  void all_gather(float* data, size_t count, Together) const override;

 private:
  struct Summing {
    Channel channel;
    std::unique_ptr<OrderedSum> ordered;  // null: the communicator's own sum
  };
  bool averages_buffers() const {
    return !options_.sync_batchnorm && parameters_->graph().buffer_count() > 0;
  }
  // first [count] = the sum over this process's shards, which begin `stride` elements apart.
  void sum_shards(float* first, size_t count, size_t stride, int shards, Stream) const;
  void sum_replicas(float* data, size_t count, bool gradients, const Summing&, Stream) const;
  void reduce(const Bucket&, const Summing*, Stream) const;
  // Gathers pieces(bucket) on the bucket's channel, for the part of each bucket in the arena.
  template <class PiecesOf>
  void gather(const PiecesOf& pieces) const;
  // Copies slot 0's data to the other slots that run together.
  void spread(float* data, size_t count, Together) const;

  Backend* backend_;
  const Parameters* parameters_;
  SyncOptions options_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  int replicas_ = 1;
  std::vector<Summing> channels_;  // none with one replica
  Trace* trace_ = nullptr;
};

}  // namespace bv
