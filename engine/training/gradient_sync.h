// Sums over the replicas of a model. Gradients are reduced bucket by bucket on the communication
// stream while backward continues. All collectives of a step run on that stream, so that every
// process issues them in the same order.
#pragma once
#include <vector>

#include "engine/training/parameters.h"

namespace bv {

// Elements of the gradient arena and its tail that are reduced at once.
struct Bucket {
  size_t begin, end;
};

// Contiguous buckets over arena and tail, in the order in which backward finishes the gradients.
// None exceeds max_bytes (but 64 elements always fit): a bucket closes before the node whose
// parameters would take it past the maximum, and larger nodes are cut at multiples of 64 elements.
// The tail follows the last node as if it were one more.
std::vector<Bucket> gradient_buckets(const Graph&, size_t max_bytes);

// As Peers, it lets batch norm compute over the batches of all replicas.
class GradientSync final : public Peers {
 public:
  GradientSync(Backend&, Communicator&, const Parameters&, size_t max_bucket_bytes,
               bool sync_batchnorm);
  size_t bucket_count() const { return buckets_.size(); }
  const Peers* peers() const { return sync_batchnorm_ ? this : nullptr; }

  // In an update's last micro-step: before its backward, and whenever the first `ready` elements of
  // the gradients are final. Stream 0 continues after the last bucket's sum.
  void start();
  void reduce(size_t ready);
  // In the update: from the sum of the running statistics, made by start(), to their mean.
  void average_buffers();

  int rank() const override { return communicator_->rank(); }
  void all_reduce(float* data, size_t count) const override;
  void all_gather(float* data, size_t count) const override;

 private:
  Stream fork() const;  // the communication stream, after stream 0
  void join() const;    // stream 0 after the communication stream
  bool averages_buffers() const {
    return !sync_batchnorm_ && parameters_->graph().buffer_count() > 0;
  }

  Backend* backend_;
  Communicator* communicator_;
  const Parameters* parameters_;
  bool sync_batchnorm_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  Event forked_, joined_;
};

}  // namespace bv
