// All-reduce, chunk by chunk: every rank copies its data in, sums its own slice of the chunk over
// all ranks in the order 0, 1, ... (so that the bits depend on the data alone), and copies the
// whole sum out. Copying in the next chunk overlaps summing the current one, so a chunk costs one
// barrier ( | ):
//   copy in 0 | sum 0, copy in 1 | copy out 0, sum 1, copy in 2 | copy out 1, sum 2, ...
// Two buffers alternate: what one phase writes was last read at least one barrier ago. Memory
// bandwidth limits the speed.
#include "comm/local/shared_memory_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/mailboxes.h"
#include "comm/local/rank_barrier.h"
#include "comm/local/shared_region.h"
#include "comm/single_communicator.h"
#include "comm/transfers.h"
#include "kernels/cpu/stream.h"

namespace bv {
namespace {

constexpr size_t line = 64;              // bytes of a cache line; no two ranks write the same one
constexpr size_t max_chunk = 1 << 18;    // stays in the L2 cache between its phases
constexpr size_t small_bytes = 1 << 12;  // up to here every rank sums it all: saves a barrier

// A communicator's area: the words of its barrier; two results; two inputs and two small inputs per
// rank; the mailboxes.
struct Layout {
  size_t chunk;  // bytes
  int ranks;

  static size_t words() { return sizeof(BarrierWords); }
  size_t result(int turn) const {
    return words() + size_t(ranks) * sizeof(MemberWords) + turn * chunk;
  }
  size_t input(int rank, int turn) const {
    return result(0) + (2 + 2 * size_t(rank) + turn) * chunk;
  }
  size_t small(int rank, int turn) const {
    return input(ranks, 0) + (2 * size_t(rank) + turn) * small_bytes;
  }
  size_t mailboxes() const { return small(ranks, 0); }
  size_t bytes() const { return mailboxes() + Mailboxes::bytes(ranks); }
};

int dup_of(int fd) {
  if ((fd = dup(fd)) >= 0) return fd;
  throw std::runtime_error("the memory shared by the processes is not open");
}

// This process's part in the run, shared by all its communicators.
struct Member {
  explicit Member(const SharedMemoryPeers& peers)
      : region(SharedRegion::open(dup_of(peers.fd))),
        place(agreed_place(region, peers)),
        chunk(std::clamp(peers.bucket_bytes / line * line, line * size_t(peers.size), max_chunk)),
        presence(region, place) {
    uint64_t none = 0;  // all ranks must set the same value
    region.control().areas_end.compare_exchange_strong(
        none, SharedRegion::area_bytes(Layout{chunk, place.size}.bytes()));
  }

  static RankPlace agreed_place(SharedRegion& region, const SharedMemoryPeers& peers) {
    if (peers.rank < 0 || peers.rank >= peers.size || peers.size != region.control().size)
      throw std::invalid_argument("rank " + std::to_string(peers.rank) + " of " +
                                  std::to_string(peers.size) + " has no place in this run");
    uint64_t agreed = 0;
    if (!region.control().bucket_bytes.compare_exchange_strong(agreed, peers.bucket_bytes) &&
        agreed != peers.bucket_bytes)
      throw std::runtime_error("rank " + std::to_string(peers.rank) + " was given bucket-bytes " +
                               std::to_string(peers.bucket_bytes) + ", another rank " +
                               std::to_string(agreed) + "; start all with the same options");
    return {peers.rank, peers.size, peers.timeout, peers.supervised, peers.run, peers.ranks};
  }

  SharedRegion region;
  RankPlace place;
  size_t chunk;
  Heartbeat presence;
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  // members: their ranks in the run. offset: of their area in the region.
  SharedMemoryCommunicator(std::shared_ptr<Member> self, std::vector<int> members, int rank,
                           size_t offset)
      : Communicator(rank, int(members.size())),
        self_(std::move(self)),
        group_{self_->region, self_->place, std::move(members), rank},
        layout_{self_->chunk, size()},
        area_(self_->region.map_area(offset, layout_.bytes())),
        barrier_(group_, *at<BarrierWords>(0), at<MemberWords>(Layout::words())),
        mailboxes_(group_, at<Mailbox>(layout_.mailboxes()), at<MemberWords>(Layout::words())) {}
  ~SharedMemoryCommunicator() override { order_.synchronize(); }

  void all_reduce(float* data, size_t count, Stream stream) override {
    order_.submit(stream, [=, this] { sum(data, count); });
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    order_.submit(stream, [=, this] { sum(data, count); });
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    order_.submit(stream, [=, this] { gather(data, count); });
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    if (root < 0 || root >= size())
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    order_.submit(stream, [=, this] { send(static_cast<std::byte*>(data), bytes, root); });
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    order_.submit(stream, [=, this] { sum_rows(data, count); });
  }
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    require_peers(transfers, size());
    order_.submit(stream, [this, all = std::vector(transfers.begin(), transfers.end())] {
      mailboxes_.exchange(all);
    });
  }
  std::unique_ptr<Communicator> group(std::span<const int> ranks) override;
  void barrier() override {
    order_.submit(nullptr, [this] { barrier_.wait(); });
  }
  void busy(Busy now) override { self_->region.rank(self_->place.rank).busy = now; }

 private:
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(area_.data() + offset);
  }

  template <class T>
  void sum(T* data, size_t count) {
    if (count * sizeof(T) <= small_bytes) return sum_small(data, count);
    const size_t per_chunk = layout_.chunk / sizeof(T);
    const size_t chunks = (count + per_chunk - 1) / per_chunk;
    const auto length = [&](size_t k) { return std::min(per_chunk, count - k * per_chunk); };
    const auto copy_in = [&](size_t k) {
      std::memcpy(at<T>(layout_.input(rank(), (turn_ + k) % 2)), data + k * per_chunk,
                  length(k) * sizeof(T));
    };
    copy_in(0);
    barrier_.wait();
    for (size_t k = 0; k < chunks; ++k) {
      const int turn = (turn_ + k) % 2;
      sum_slice<T>(length(k), turn);
      if (k + 1 < chunks) copy_in(k + 1);
      barrier_.wait();
      std::memcpy(data + k * per_chunk, at<T>(layout_.result(turn)), length(k) * sizeof(T));
    }
    turn_ = (turn_ + chunks) % 2;
  }

  // Sums this rank's slice of a chunk of n elements.
  template <class T>
  void sum_slice(size_t n, int turn) {
    constexpr size_t per_line = line / sizeof(T);
    const size_t lines = (n + per_line - 1) / per_line;
    const size_t begin = lines * rank() / size() * per_line;
    const size_t end = std::min(n, lines * (rank() + 1) / size() * per_line);
    if (begin >= end) return;
    sum_ranks(at<T>(layout_.result(turn)) + begin, end - begin,
              [&](int r) { return at<T>(layout_.input(r, turn)) + begin; });
  }

  template <class T>
  void sum_small(T* data, size_t count) {
    const int turn = small_turn_;
    small_turn_ ^= 1;
    std::copy_n(data, count, at<T>(layout_.small(rank(), turn)));  // count may be 0 and data null
    barrier_.wait();
    sum_ranks(data, count, [&](int r) { return at<T>(layout_.small(r, turn)); });
  }

  template <class T, class InputOf>
  void sum_ranks(T* __restrict out, size_t n, InputOf input) {
    const T *first = input(0), *second = input(1);
#pragma omp simd
    for (size_t i = 0; i < n; ++i) out[i] = first[i] + second[i];
    for (int r = 2; r < size(); ++r) {
      const T* next = input(r);
#pragma omp simd
      for (size_t i = 0; i < n; ++i) out[i] += next[i];
    }
  }

  void gather(float* data, size_t count) {
    const size_t per_chunk = layout_.chunk / sizeof(float);
    for (size_t done = 0; done < count; turn_ ^= 1) {
      const size_t n = std::min(per_chunk, count - done);
      std::memcpy(at<float>(layout_.input(rank(), turn_)), data + size_t(rank()) * count + done,
                  n * sizeof(float));
      barrier_.wait();
      for (int r = 0; r < size(); ++r)
        if (r != rank())
          std::memcpy(data + size_t(r) * count + done, at<float>(layout_.input(r, turn_)),
                      n * sizeof(float));
      done += n;
    }
  }

  void send(std::byte* data, size_t bytes, int root) {
    for (size_t done = 0; done < bytes; turn_ ^= 1) {
      const size_t n = std::min(layout_.chunk, bytes - done);
      std::byte* shared = at<std::byte>(layout_.result(turn_));
      if (rank() == root) std::memcpy(shared, data + done, n);
      barrier_.wait();
      if (rank() != root) std::memcpy(data + done, shared, n);
      done += n;
    }
  }

  // In each step, every rank copies in a piece of every row and sums that piece of its own row.
  void sum_rows(float* data, size_t count) {
    const auto ranks = size_t(size()), own = size_t(rank());
    const size_t piece = layout_.chunk / sizeof(float) / ranks;
    for (size_t done = 0; done < count; turn_ ^= 1) {
      const size_t n = std::min(piece, count - done);
      for (size_t r = 0; r < ranks; ++r)
        std::memcpy(at<float>(layout_.input(rank(), turn_)) + r * n, data + r * count + done,
                    n * sizeof(float));
      barrier_.wait();
      sum_ranks(data + own * count + done, n,
                [&](int r) { return at<float>(layout_.input(r, turn_)) + own * n; });
      done += n;
    }
  }

  std::shared_ptr<Member> self_;
  RankGroup group_;
  Layout layout_;
  SharedArea area_;
  RankBarrier barrier_;
  Mailboxes mailboxes_;
  int turn_ = 0, small_turn_ = 0;
  StreamOrder order_;
};

// All ranks gather all lists, so they report the same mistake. Each group's area has room for all
// ranks; only pages that are written take memory.
std::unique_ptr<Communicator> SharedMemoryCommunicator::group(std::span<const int> ranks) {
  const auto all = size_t(size());
  std::vector<float> lists(all * all, -1);
  const auto in_range = [&](int r) { return r >= 0 && r < size() && ranks.size() <= all; };
  for (size_t i = 0; i < std::min(ranks.size(), all); ++i)
    lists[size_t(rank()) * all + i] = in_range(ranks[i]) ? float(ranks[i]) : float(all);
  all_gather(lists.data(), all, nullptr);
  const size_t each = SharedRegion::area_bytes(Layout{self_->chunk, size()}.bytes());
  uint64_t areas = rank() > 0 ? 0 : self_->region.control().areas_end.fetch_add(all * each);
  broadcast(&areas, sizeof areas, 0, nullptr);

  const auto list_of = [&](int r) { return std::span(lists).subspan(size_t(r) * all, all); };
  for (int r = 0; r < size(); ++r) {
    const auto list = list_of(r);
    bool holds_itself = false;
    for (const float named : list) {
      if (named == -1) continue;
      const int other = int(named);
      if (other == size() || std::count(list.begin(), list.end(), named) > 1 ||
          !std::equal(list.begin(), list.end(), list_of(other).begin()))
        throw std::invalid_argument("group: rank " + std::to_string(r) +
                                    " lists other ranks than they do");
      holds_itself |= other == r;
    }
    if (!holds_itself)
      throw std::invalid_argument("group: rank " + std::to_string(r) + " doesn't name itself");
  }
  if (ranks.size() == 1) return make_single_communicator();
  std::vector<int> members;
  for (const int r : ranks) members.push_back(group_.members[r]);
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  return std::make_unique<SharedMemoryCommunicator>(
      self_, std::move(members), int(own - ranks.begin()), areas + size_t(ranks[0]) * each);
}

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryPeers& peers) {
  if (peers.size == 1) return make_single_communicator();
  std::vector<int> everyone(size_t(peers.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_unique<SharedMemoryCommunicator>(std::make_shared<Member>(peers),
                                                    std::move(everyone), peers.rank, 0);
}

}  // namespace bv
