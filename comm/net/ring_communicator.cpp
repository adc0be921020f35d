#include "comm/net/ring_communicator.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace bv {
namespace {

// Up to this size every rank sends all its data to all others: one step instead of 2 (N - 1).
constexpr size_t small_bytes = 1 << 12;

// Divides n elements into one chunk (or row) per rank.
struct Chunks {
  size_t n;
  int ranks;
  size_t begin(int r) const { return n * size_t(r) / size_t(ranks); }
  size_t length(int r) const { return begin(r + 1) - begin(r); }
};

class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(std::shared_ptr<Mesh> mesh, std::vector<int> ranks, int place,
                   std::unique_ptr<Communicator> hosts, Communicator& host)
      : Communicator(place, static_cast<int>(ranks.size())),
        mesh_(std::move(mesh)),
        ranks_(std::move(ranks)),
        hosts_(std::move(hosts)),
        host_(host) {}
  ~RingCommunicator() override { mesh_->order().synchronize(); }

  bool in_call_order() const override { return true; }
  void all_reduce(float* data, size_t count, Stream stream) override {
    mesh_->order().submit(stream, [=, this] { sum(data, count); });
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    mesh_->order().submit(stream, [=, this] { sum(data, count); });
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    mesh_->order().submit(stream, [=, this] { pass_on(data, {count * size_t(size()), size()}); });
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    mesh_->order().submit(stream, [=, this] { add_up(data, {count * size_t(size()), size()}); });
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    if (root < 0 || root >= size())
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    mesh_->order().submit(stream, [=, this] { send_all(data, bytes, root); });
  }
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    std::vector<Transfer> in_run(transfers.begin(), transfers.end());
    for (Transfer& t : in_run) t.peer = in_run_of(t.peer);
    mesh_->order().submit(stream, [this, in_run] { mesh_->exchange(in_run); });
  }
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override {
    std::vector<int> in_run;
    for (const int rank : ranks) in_run.push_back(in_run_of(rank));
    const auto place = std::ranges::find(ranks, rank()) - ranks.begin();
    if (size_t(place) == ranks.size()) throw std::invalid_argument("group: without this rank");
    return std::make_unique<RingCommunicator>(mesh_, std::move(in_run), static_cast<int>(place),
                                              nullptr, host_);
  }
  void barrier() override {
    mesh_->order().synchronize();
    if (hosts_) return hosts_->barrier();
    float nothing = 0;
    all_reduce(&nothing, 1, nullptr);
  }
  double all_reduce_scalar(double x) override {
    if (hosts_) return hosts_->all_reduce_scalar(x);
    return Communicator::all_reduce_scalar(x);
  }
  void busy(Busy now) override { host_.busy(now); }
  std::string failure() const override { return host_.failure(); }
  void end_run(const std::string& why) override { host_.end_run(why); }

 private:
  int in_run_of(int rank) const { return ranks_.at(size_t(rank)); }
  int neighbour(int steps) const { return ranks_[size_t((rank() + steps + size()) % size())]; }
  int around(int chunk) const { return (chunk % size() + size()) % size(); }

  template <class T>
  void sum(T* data, size_t count) {
    if (count * sizeof(T) <= small_bytes) return sum_small(data, count);
    add_up(data, {count, size()});
    pass_on(data, {count, size()});
  }

  // Reduce-scatter: chunk r is summed on its way around the ring, from rank r + 1 to rank r.
  template <class T>
  void add_up(T* data, Chunks chunks) {
    std::vector<T>& received = scratch<T>();
    received.resize((chunks.n + size_t(size()) - 1) / size_t(size()));
    for (int step = 0; step + 1 < size(); ++step) {
      const int out = around(rank() - 1 - step), in = around(rank() - 2 - step);
      step_around(data + chunks.begin(out), chunks.length(out), received.data(), chunks.length(in));
      T* __restrict sum = data + chunks.begin(in);
      const T* __restrict part = received.data();
      const size_t n = chunks.length(in);
#pragma omp simd
      for (size_t i = 0; i < n; ++i) sum[i] += part[i];
    }
  }

  // All-gather: at first, rank r has chunk r.
  template <class T>
  void pass_on(T* data, Chunks chunks) {
    for (int step = 0; step + 1 < size(); ++step) {
      const int out = around(rank() - step), in = around(rank() - step - 1);
      step_around(data + chunks.begin(out), chunks.length(out), data + chunks.begin(in),
                  chunks.length(in));
    }
  }

  template <class T>
  void step_around(T* out, size_t out_count, T* in, size_t in_count) {
    const Transfer both[] = {{out, out_count * sizeof(T), neighbour(1), true},
                             {in, in_count * sizeof(T), neighbour(-1), false}};
    mesh_->exchange(both);
  }

  // Every rank adds in rank order.
  template <class T>
  void sum_small(T* data, size_t count) {
    std::vector<T>& rows = scratch<T>();
    rows.resize(count * size_t(size()));
    std::vector<Transfer> transfers;
    for (int r = 0; r < size(); ++r) {
      transfers.push_back({data, count * sizeof(T), in_run_of(r), true});
      transfers.push_back(
          {rows.data() + size_t(r) * count, count * sizeof(T), in_run_of(r), false});
    }
    mesh_->exchange(transfers);
    std::copy_n(rows.data(), count, data);
    for (int r = 1; r < size(); ++r)
      for (size_t i = 0; i < count; ++i) data[i] += rows[size_t(r) * count + i];
  }

  void send_all(void* data, size_t bytes, int root) {
    std::vector<Transfer> transfers;
    if (rank() != root) transfers.push_back({data, bytes, in_run_of(root), false});
    for (int r = 0; rank() == root && r < size(); ++r)
      if (r != root) transfers.push_back({data, bytes, in_run_of(r), true});
    mesh_->exchange(transfers);
  }

  template <class T>
  std::vector<T>& scratch() {
    if constexpr (sizeof(T) == sizeof(float))
      return floats_;
    else
      return doubles_;
  }

  std::shared_ptr<Mesh> mesh_;
  std::vector<int> ranks_;               // of the run, in the group's order
  std::unique_ptr<Communicator> hosts_;  // null: this is a group
  Communicator& host_;                   // hosts_ of the communicator of all ranks
  std::vector<float> floats_;            // received chunks, to be added
  std::vector<double> doubles_;
};

}  // namespace

std::unique_ptr<Communicator> make_ring_communicator(std::shared_ptr<Mesh> mesh,
                                                     std::unique_ptr<Communicator> hosts) {
  std::vector<int> ranks(size_t(mesh->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const int rank = mesh->rank();
  Communicator& host = *hosts;
  return std::make_unique<RingCommunicator>(std::move(mesh), std::move(ranks), rank,
                                            std::move(hosts), host);
}

}  // namespace bv
