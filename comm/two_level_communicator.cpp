#include "comm/two_level_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace bv {
namespace {

constexpr size_t small_count = 1 << 10;  // elements; up to here two all-reduces are faster

std::vector<int> all_of(const Communicator& c) {
  std::vector<int> ranks(size_t(c.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class TwoLevelCommunicator final : public Communicator {
 public:
  TwoLevelCommunicator(std::unique_ptr<Communicator> whole, std::unique_ptr<Communicator> local,
                       std::unique_ptr<Communicator> across)
      : Communicator(whole->rank(), whole->size()),
        whole_(std::move(whole)),
        local_(std::move(local)),
        across_(std::move(across)) {}

  bool in_call_order() const override { return true; }
  void all_reduce(float* data, size_t count, Stream stream) override {
    const auto ranks = size_t(local_ ? local_->size() : 1);
    const size_t row = count <= small_count ? 0 : count / ranks;
    if (!local_ || row == 0) return at_once(data, count, stream);
    local_->reduce_scatter(data, row, stream);
    across_->all_reduce(data + row * size_t(local_->rank()), row, stream);
    local_->all_gather(data, row, stream);
    // The remainder has fewer elements than there are ranks, and can't be divided between them.
    const size_t done = row * ranks;
    if (done < count) at_once(data + done, count - done, stream);
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    at_once(data, count, stream);
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    whole_->all_gather(data, count, stream);
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    whole_->broadcast(data, bytes, root, stream);
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    whole_->reduce_scatter(data, count, stream);
  }
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    whole_->exchange(transfers, stream);
  }
  // A group of all ranks (another channel) must sum in the same order, so it has two levels, too.
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override {
    auto whole = whole_->group(ranks);
    if (!std::ranges::equal(ranks, all_of(*this))) return whole;
    auto local = local_ ? local_->group(all_of(*local_)) : nullptr;
    return std::make_unique<TwoLevelCommunicator>(std::move(whole), std::move(local),
                                                  across_->group(all_of(*across_)));
  }
  void barrier() override { whole_->barrier(); }
  double all_reduce_scalar(double x) override { return whole_->all_reduce_scalar(x); }
  void busy(Busy now) override { whole_->busy(now); }
  std::string note() const override { return whole_->note(); }
  std::string failure() const override { return whole_->failure(); }
  void end_run(const std::string& why) override { whole_->end_run(why); }

 private:
  // Without scattering: every rank reduces all of the data, in its node and then between nodes.
  template <class T>
  void at_once(T* data, size_t count, Stream stream) {
    if (local_) local_->all_reduce(data, count, stream);
    across_->all_reduce(data, count, stream);
  }

  std::unique_ptr<Communicator> whole_, local_, across_;
};

}  // namespace

std::unique_ptr<Communicator> make_two_level_communicator(std::unique_ptr<Communicator> whole,
                                                          std::unique_ptr<Communicator> local,
                                                          std::unique_ptr<Communicator> across) {
  return std::make_unique<TwoLevelCommunicator>(std::move(whole), std::move(local),
                                                std::move(across));
}

}  // namespace bv
