// All-reduce, chunk by chunk: every rank copies its data in, sums its own slice of the chunk over
// all ranks in the order 0, 1, ... (so that the bits depend on the data alone), and copies the
// whole sum out. Copying in the next chunk overlaps summing the current one, so a chunk costs one
// barrier ( | ):
//   copy in 0 | sum 0, copy in 1 | copy out 0, sum 1, copy in 2 | copy out 1, sum 2, ...
// Two buffers alternate: what one phase writes was last read at least one barrier ago. Memory
// bandwidth limits it.
#include "kernels/comm/shared_memory_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/comm/rank_barrier.h"
#include "kernels/comm/shared_region.h"
#include "kernels/cpu/stream.h"

namespace bv {
namespace {

constexpr size_t line = 64;              // bytes of a cache line; no two ranks write the same one
constexpr size_t max_chunk = 1 << 18;    // stays in the L2 cache between its phases
constexpr size_t small_bytes = 1 << 12;  // up to here every rank sums it all, for one barrier less

// The data after the control block: two results; per rank two inputs and two small inputs.
struct Layout {
  size_t chunk;  // bytes
  int ranks;

  size_t result(int turn) const { return turn * chunk; }
  size_t input(int rank, int turn) const { return (2 + 2 * size_t(rank) + turn) * chunk; }
  size_t small(int rank, int turn) const {
    return input(ranks, 0) + (2 * size_t(rank) + turn) * small_bytes;
  }
  size_t bytes() const { return small(ranks, 0); }
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  explicit SharedMemoryCommunicator(const SharedMemoryPeers& peers)
      : Communicator(peers.rank, peers.size),
        region_(SharedRegion::open(dup_of(peers.fd))),
        layout_{std::clamp(peers.bucket_bytes / line * line, line, max_chunk), peers.size},
        data_(map_data(region_, peers, layout_.bytes())),
        barrier_(region_, {peers.rank, peers.size, peers.timeout, peers.supervised, peers.run,
                           peers.ranks}) {}
  ~SharedMemoryCommunicator() override { move_to(nullptr); }

  void all_reduce(float* data, size_t count, Stream stream) override {
    submit(stream, [=, this] { sum(data, count); });
  }
  void all_reduce(double* data, size_t count, Stream stream) override {
    submit(stream, [=, this] { sum(data, count); });
  }
  void all_gather(float* data, size_t count, Stream stream) override {
    submit(stream, [=, this] { gather(data, count); });
  }
  void reduce_scatter(float* data, size_t count, Stream stream) override {
    all_reduce(data, count * size_t(size()), stream);
  }
  void broadcast(void* data, size_t bytes, int root, Stream stream) override {
    if (root < 0 || root >= size())
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    submit(stream, [=, this] { send(static_cast<std::byte*>(data), bytes, root); });
  }
  void barrier() override {
    submit(nullptr, [this] { barrier_.wait(); });
  }
  void busy(Busy now) override { barrier_.busy(now); }

 private:
  static int dup_of(int fd) {
    if ((fd = dup(fd)) >= 0) return fd;
    throw std::runtime_error("the memory shared by the processes is not open");
  }
  static std::byte* map_data(SharedRegion& region, const SharedMemoryPeers& peers, size_t bytes) {
    uint64_t agreed = 0;
    if (!region.control().bucket_bytes.compare_exchange_strong(agreed, peers.bucket_bytes) &&
        agreed != peers.bucket_bytes)
      throw std::runtime_error("rank " + std::to_string(peers.rank) + " was given bucket-bytes " +
                               std::to_string(peers.bucket_bytes) + ", another rank " +
                               std::to_string(agreed) + "; start all with the same options");
    return region.map_data(bytes);
  }

  // Keeps the order of the calls when the stream changes.
  void move_to(Stream next) {
    if (stream_ != next) synchronize_stream(stream_);
    stream_ = next;
  }
  void submit(Stream stream, std::function<void()> work) {
    move_to(stream);
    run_on(stream, std::move(work));
  }

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
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

  // This rank's slice of a chunk of n elements.
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
    std::memcpy(at<T>(layout_.small(rank(), turn)), data, count * sizeof(T));
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

  SharedRegion region_;
  Layout layout_;
  std::byte* data_;
  RankBarrier barrier_;
  int turn_ = 0, small_turn_ = 0;
  Stream stream_ = nullptr;  // of the last collective
};

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1) {}
  void all_reduce(float*, size_t, Stream) override {}
  void all_reduce(double*, size_t, Stream) override {}
  void all_gather(float*, size_t, Stream) override {}
  void broadcast(void*, size_t, int, Stream) override {}
  void barrier() override {}
  void busy(Busy) override {}
};

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryPeers& peers) {
  if (peers.size == 1) return std::make_unique<SingleCommunicator>();
  return std::make_unique<SharedMemoryCommunicator>(peers);
}

}  // namespace bv
