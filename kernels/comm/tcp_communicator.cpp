// A connection carries frames: data of a collective, or word of the sender's state. One thread
// reads all of them and puts data into a queue for each peer; whoever calls a collective takes it
// from there. Rank 0 tells all ranks of all ranks, and when one is gone tells the others to end.
#include "kernels/comm/tcp_communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace bv {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(100);
constexpr auto beat = std::chrono::milliseconds(500);

enum class Kind : uint32_t { data, state, left, end };
struct FrameHead {
  Kind kind;
  uint32_t bytes;
};

// What a rank tells of a rank.
struct RankWord {
  int32_t rank;
  uint32_t busy;
  uint64_t waits;
  int64_t age_ms;  // since its last heartbeat
};

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

bool write_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    at += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool read_all(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    at += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

struct Peer {
  int rank;
  Socket socket;
  std::mutex writing;
  std::deque<Bytes> received;  // data that no collective has taken yet
  std::atomic<bool> open{true};
};

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(const RankPlace& place, std::vector<Socket> sockets, int region_fd)
      : place_(place), region_(SharedRegion::open(dup(region_fd))) {
    for (int r = 0; r < place.size; ++r) region_.rank(r).state = RankState::here;
    for (size_t i = 0; i < sockets.size(); ++i)
      if (sockets[i]) {
        peers_.push_back(std::make_unique<Peer>());
        peers_.back()->rank = static_cast<int>(i);
        peers_.back()->socket = std::move(sockets[i]);
      }
    thread_ = std::thread([this] { listen_to_peers(); });
  }
  ~TcpCommunicator() override {
    closing_ = true;
    thread_.join();
    for (const auto& peer : peers_) send_frame(*peer, Kind::left, nullptr, 0);
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  void all_reduce(float* data, size_t count, Stream) override { sum(data, count); }
  void all_reduce(double* data, size_t count, Stream) override { sum(data, count); }
  void all_gather(float* data, size_t count, Stream) override {
    const size_t row = count * sizeof(float);
    auto* all = reinterpret_cast<std::byte*>(data);
    gather_and_answer(all + row * static_cast<size_t>(place_.rank), row, all,
                      row * static_cast<size_t>(place_.size), [&](int r, const Bytes& part) {
                        put(part, all + row * static_cast<size_t>(r), row, r);
                      });
  }
  void broadcast(void* data, size_t bytes, int root, Stream) override {
    if (root < 0 || root >= place_.size)
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    const bool sends = place_.rank == root;
    gather_and_answer(data, sends ? bytes : 0, data, bytes, [&](int r, const Bytes& part) {
      if (r == root) put(part, data, bytes, r);
    });
  }
  void barrier() override {
    double nothing = 0;
    sum(&nothing, 1);
  }
  double all_reduce_scalar(double x) override {
    sum(&x, 1);
    return x;
  }
  void busy(bool now) override {
    region_.rank(place_.rank).busy = now ? 1 : 0;
    tell_state();
  }
  void end_run() override { tell_end(); }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  // ---- collectives ----
  template <class T>
  void sum(T* data, size_t count) {
    const size_t bytes = count * sizeof(T);
    gather_and_answer(data, bytes, data, bytes, [&](int rank, const Bytes& part) {
      require_bytes(part, bytes, rank);
      const T* other = reinterpret_cast<const T*>(part.data());
      for (size_t i = 0; i < count; ++i) data[i] += other[i];
    });
  }

  // Rank 0 takes from each rank, in their order, its part, and then sends all of them the answer.
  template <class Take>
  void gather_and_answer(const void* part, size_t bytes, void* answer, size_t answer_bytes,
                         Take take_in) {
    if (place_.rank > 0) {
      send_frame(*peers_[0], Kind::data, part, bytes);
      return put(take(*peers_[0]), answer, answer_bytes, 0);
    }
    for (const auto& peer : peers_) {
      const Bytes got = take(*peer);
      if (!got.empty() || bytes > 0) take_in(peer->rank, got);
    }
    for (const auto& peer : peers_) send_frame(*peer, Kind::data, answer, answer_bytes);
  }

  static void require_bytes(const Bytes& got, size_t wanted, int from) {
    if (got.size() != wanted)
      throw std::runtime_error(
          "rank " + std::to_string(from) + " sent " + std::to_string(got.size()) + " bytes where " +
          std::to_string(wanted) + " belong; start all ranks with the same program and options");
  }

  static void put(const Bytes& got, void* to, size_t wanted, int from) {
    require_bytes(got, wanted, from);
    std::copy(got.begin(), got.end(), static_cast<std::byte*>(to));
  }

  // The next data of a peer. Doesn't return where something is wrong.
  Bytes take(Peer& peer) {
    std::unique_lock lock(mutex_);
    double waited = 0;
    while (peer.received.empty()) {
      const auto start = Clock::now();
      arrived_.wait_for(lock, tick);
      if (!peer.received.empty()) break;
      if (region_.board().ending) _exit(1);
      if (!failure_.empty()) end(failure_);
      if (!peer.open) end("rank " + std::to_string(peer.rank) + " has ended before this one");
      // A tick counts as no more than two, so that a run that was stopped as a whole goes on.
      const std::chrono::duration<double> passed = Clock::now() - start;
      waited += std::min(passed, 2 * std::chrono::duration<double>(tick)).count();
      for (int r = 0; r < place_.size; ++r)
        if (r != place_.rank && region_.rank(r).busy) waited = 0;
      // Rank 0 knows best who is missing.
      if (waited < place_.timeout + (place_.rank > 0 ? 2 : 0)) continue;
      char why[96];
      std::snprintf(why, sizeof why, "rank %d has not answered for %g s (--timeout)", peer.rank,
                    place_.timeout);
      tell_end();
      end(why);
    }
    Bytes data = std::move(peer.received.front());
    peer.received.pop_front();
    return data;
  }
  [[noreturn]] void end(const std::string& why) { end_process(region_, place_, why, false); }

  // ---- frames ----
  static bool send_frame(Peer& peer, Kind kind, const void* data, size_t bytes) {
    const std::lock_guard lock(peer.writing);
    const FrameHead head{kind, static_cast<uint32_t>(bytes)};
    return write_all(peer.socket.fd(), &head, sizeof head) &&
           (bytes == 0 || write_all(peer.socket.fd(), data, bytes));
  }

  void tell_state() {
    std::vector<RankWord> words;
    for (int r = 0; r < place_.size; ++r) {
      if (place_.rank > 0 && r != place_.rank) continue;
      const RankBoard& board = region_.rank(r);
      words.push_back({.rank = r,
                       .busy = board.busy,
                       .waits = board.waits,
                       .age_ms = now_ms() - board.heartbeat});
    }
    for (const auto& peer : peers_)
      if (peer->open) send_frame(*peer, Kind::state, words.data(), words.size() * sizeof(RankWord));
  }

  void tell_end() {
    for (const auto& peer : peers_)
      if (peer->open) send_frame(*peer, Kind::end, nullptr, 0);
  }

  // ---- the thread that reads ----
  void listen_to_peers() {
    auto last_beat = Clock::now();
    while (!closing_) {
      std::vector<pollfd> items;
      for (const auto& peer : peers_)
        items.push_back({peer->open ? peer->socket.fd() : -1, POLLIN, 0});
      poll(items.data(), items.size(), static_cast<int>(tick.count()));
      for (size_t i = 0; i < items.size(); ++i)
        if (items[i].revents) receive(*peers_[i]);
      if (Clock::now() - last_beat < beat) continue;
      last_beat = Clock::now();
      tell_state();
    }
  }

  void receive(Peer& peer) {
    FrameHead head{};
    Bytes data;
    bool whole = read_all(peer.socket.fd(), &head, sizeof head);
    if (whole) {
      data.resize(head.bytes);
      whole = read_all(peer.socket.fd(), data.data(), data.size());
    }
    if (!whole) return lose(peer);
    switch (head.kind) {
      case Kind::data: {
        const std::lock_guard lock(mutex_);
        peer.received.push_back(std::move(data));
        arrived_.notify_all();
        return;
      }
      case Kind::state:
        return hear(data);
      case Kind::left: {
        const std::lock_guard lock(mutex_);
        peer.open = false;
        arrived_.notify_all();
        return;
      }
      case Kind::end:
        region_.board().ending = 1;
        return;
    }
  }

  void hear(const Bytes& data) {
    for (size_t at = 0; at + sizeof(RankWord) <= data.size(); at += sizeof(RankWord)) {
      RankWord word;
      std::memcpy(&word, data.data() + at, sizeof word);
      if (word.rank < 0 || word.rank >= place_.size || word.rank == place_.rank) continue;
      RankBoard& board = region_.rank(word.rank);
      board.busy = word.busy;
      board.waits = word.waits;
      board.heartbeat = now_ms() - word.age_ms;
    }
  }

  void lose(Peer& peer) {
    peer.open = false;
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty())
        failure_ =
            "rank " + std::to_string(peer.rank) + " has died, or its machine can't be reached";
    }
    if (place_.rank == 0) tell_end();
    arrived_.notify_all();
  }

  RankPlace place_;
  SharedRegion region_;
  std::vector<std::unique_ptr<Peer>> peers_;
  mutable std::mutex mutex_;  // of what has arrived, and failure_
  std::condition_variable arrived_;
  std::string failure_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(const RankPlace& place,
                                                    std::vector<Socket> sockets, int region_fd) {
  return std::make_unique<TcpCommunicator>(place, std::move(sockets), region_fd);
}

}  // namespace bv
