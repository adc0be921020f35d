// Sums over the replicas of a model. Gradients are reduced bucket by bucket while backward
// continues, on one or more channels: each has a stream and a communicator of its own. Every
// process issues the same collectives in the same order on each channel, and each bucket is summed
// separately, so the number of channels doesn't change the bits of the result.
#pragma once
#include <vector>

#include "engine/model/channel.h"
#include "engine/model/parameters.h"
#include "engine/trace/trace.h"

namespace bv {

// A range of the gradient arena and its tail that is reduced as one message.
struct Bucket {
  size_t begin, end;
};

struct SyncOptions {
  size_t bucket_bytes;          // at most
  int channels = 1;             // --comm-streams
  int first_stream = 0;         // communication stream of the first channel
  bool sync_batchnorm = false;  // computes statistics over all replicas' batches
};

// Contiguous buckets over arena and tail, in the order in which backward finishes the gradients.
// None exceeds max_bytes (but 64 elements are always allowed): a bucket closes before the node
// whose parameters would exceed the maximum, and larger nodes are cut at multiples of 64 elements.
// The first bucket's maximum is 1 MiB, so that reduction starts early, as in PyTorch's DDP. The
// tail follows the last node like another node.
std::vector<Bucket> gradient_buckets(const Graph&, size_t max_bytes);

// As Peers, it lets batch norm compute statistics over the batches of all replicas.
class GradientSync final : public Peers {
 public:
  // Collective over the communicator if there are several channels.
  GradientSync(Backend&, Communicator&, const Parameters&, const SyncOptions&);
  const Peers* peers() const { return options_.sync_batchnorm ? this : nullptr; }
  size_t bucket_count() const { return buckets_.size(); }
  void trace(Trace* to) { trace_ = to; }

  // For an update's last micro-step: call start() before its backward, and reduce() whenever the
  // first `ready` elements of the gradients are final. Stream 0 waits for the last bucket's sum.
  void start();
  void reduce(size_t ready);
  // For the update: turns the sum of the running statistics, made by start(), into their mean.
  void average_buffers();

  int rank() const override { return channels_[0].communicator().rank(); }
  void all_reduce(float* data, size_t count) const override;
  void all_gather(float* data, size_t count) const override;

 private:
  bool averages_buffers() const {
    return !options_.sync_batchnorm && parameters_->graph().buffer_count() > 0;
  }

  Backend* backend_;
  const Parameters* parameters_;
  SyncOptions options_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  std::vector<Channel> channels_;
  Trace* trace_ = nullptr;
};

}  // namespace bv
