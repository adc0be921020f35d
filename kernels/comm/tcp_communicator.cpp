// A connection carries frames: data of collectives, and reports on the sender's state, which one
// thread reads. Rank 0 reports on all ranks to all, and tells the others to end when one is gone.
#include "kernels/comm/tcp_communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
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

constexpr auto tick = std::chrono::milliseconds(watch_tick_ms);
constexpr auto beat = std::chrono::milliseconds(500);

enum class Kind : uint32_t { data, state, left, end };
struct FrameHead {
  Kind kind;
  uint32_t bytes;
};

struct RankReport {
  int32_t rank;
  uint32_t busy;
  uint64_t waits;
  int64_t age_ms;  // since its last heartbeat
};

// Calls send or recv until all bytes have passed. False: the connection has ended.
template <class Call, class Byte>
bool transfer(Call call, int fd, Byte* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = call(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= size_t(n);
  }
  return true;
}

struct Peer {
  int rank;
  Socket socket;
  std::mutex writing;
  std::deque<Bytes> received;  // not yet taken by a collective
  std::atomic<bool> open{true};
};

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(const RankPlace& place, std::vector<Socket> sockets, int region_fd)
      : Communicator(place.rank, place.size),
        place_(place),
        region_(SharedRegion::open(dup(region_fd))) {
    for (int r = 0; r < place.size; ++r) region_.rank(r).state = RankState::here;
    for (size_t i = 0; i < sockets.size(); ++i)
      if (sockets[i]) peers_.push_back(std::make_unique<Peer>(int(i), std::move(sockets[i])));
    thread_ = std::thread([this] { listen_to_peers(); });
  }
  ~TcpCommunicator() override {
    closing_ = true;
    thread_.join();
    for (const auto& peer : peers_) send_frame(*peer, Kind::left, nullptr, 0);
  }

  void all_reduce(float* data, size_t count, Stream) override { sum(data, count); }
  void all_reduce(double* data, size_t count, Stream) override { sum(data, count); }
  void all_gather(float* data, size_t count, Stream) override {
    const size_t row = count * sizeof(float);
    auto* all = reinterpret_cast<std::byte*>(data);
    gather_and_answer(all + row * size_t(place_.rank), row, all, row * size_t(place_.size),
                      [&](int r, const Bytes& part) { put(part, all + row * size_t(r), row, r); });
  }
  void broadcast(void* data, size_t bytes, int root, Stream) override {
    if (root < 0 || root >= place_.size)
      throw std::invalid_argument("broadcast: there is no rank " + std::to_string(root));
    const bool sends = place_.rank == root;
    gather_and_answer(data, sends ? bytes : 0, data, bytes, [&](int r, const Bytes& part) {
      if (r == root) put(part, data, bytes, r);
    });
  }
  void barrier() override { all_reduce_scalar(0); }
  void busy(bool now) override {
    region_.rank(place_.rank).busy = now;
    send_report();
  }
  void end_run() override {
    for (const auto& peer : peers_)
      if (peer->open) send_frame(*peer, Kind::end, nullptr, 0);
  }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  template <class T>
  void sum(T* data, size_t count) {
    const size_t bytes = count * sizeof(T);
    gather_and_answer(data, bytes, data, bytes, [&](int rank, const Bytes& part) {
      require_bytes(part, bytes, rank);
      const T* other = reinterpret_cast<const T*>(part.data());
      for (size_t i = 0; i < count; ++i) data[i] += other[i];
    });
  }

  // Rank 0 takes each rank's part in rank order, then sends the answer to all of them.
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

  // The next data from a peer. Doesn't return if something is wrong.
  Bytes take(Peer& peer) {
    std::unique_lock lock(mutex_);
    WaitTimer timer;
    while (peer.received.empty()) {
      arrived_.wait_for(lock, tick);
      if (!peer.received.empty()) break;
      if (region_.control().ending) _exit(1);
      if (!failure_.empty()) end(failure_);
      if (!peer.open) end("rank " + std::to_string(peer.rank) + " has ended before this one");
      bool busy = false;
      for (int r = 0; r < place_.size; ++r) busy |= r != place_.rank && region_.rank(r).busy;
      // Rank 0 knows best who is missing: the others give it 2 s to say so.
      if (timer.look(busy) < place_.timeout + (place_.rank > 0 ? 2 : 0)) continue;
      end_run();
      end(no_answer(peer.rank, place_.timeout));
    }
    Bytes data = std::move(peer.received.front());
    peer.received.pop_front();
    return data;
  }
  [[noreturn]] void end(const std::string& why) { end_process(region_, place_, why, false); }

  static bool send_frame(Peer& peer, Kind kind, const void* data, size_t bytes) {
    const std::lock_guard lock(peer.writing);
    const FrameHead head{kind, uint32_t(bytes)};
    return transfer(send, peer.socket.fd(), reinterpret_cast<const char*>(&head), sizeof head) &&
           transfer(send, peer.socket.fd(), static_cast<const char*>(data), bytes);
  }

  void send_report() {
    std::vector<RankReport> reports;
    for (int r = 0; r < place_.size; ++r) {
      if (place_.rank > 0 && r != place_.rank) continue;
      const RankStatus& status = region_.rank(r);
      reports.push_back({r, status.busy, status.waits, monotonic_ms() - status.heartbeat});
    }
    for (const auto& peer : peers_)
      if (peer->open)
        send_frame(*peer, Kind::state, reports.data(), reports.size() * sizeof(RankReport));
  }

  void listen_to_peers() {
    auto last_beat = Clock::now();
    while (!closing_) {
      std::vector<pollfd> items;
      for (const auto& peer : peers_)
        items.push_back({peer->open ? peer->socket.fd() : -1, POLLIN, 0});
      poll(items.data(), items.size(), int(tick.count()));
      for (size_t i = 0; i < items.size(); ++i)
        if (items[i].revents) receive(*peers_[i]);
      if (Clock::now() - last_beat < beat) continue;
      last_beat = Clock::now();
      send_report();
    }
  }

  void receive(Peer& peer) {
    FrameHead head{};
    Bytes data;
    if (!transfer(recv, peer.socket.fd(), reinterpret_cast<char*>(&head), sizeof head))
      return lose(peer);
    data.resize(head.bytes);
    if (!transfer(recv, peer.socket.fd(), data.data(), data.size())) return lose(peer);
    if (head.kind == Kind::state) return note_reports(data);
    if (head.kind == Kind::end) {
      region_.control().ending = 1;
      return;
    }
    const std::lock_guard lock(mutex_);
    if (head.kind == Kind::data) peer.received.push_back(std::move(data));
    if (head.kind == Kind::left) peer.open = false;
    arrived_.notify_all();
  }

  void note_reports(const Bytes& data) {
    for (size_t at = 0; at + sizeof(RankReport) <= data.size(); at += sizeof(RankReport)) {
      RankReport report;
      std::memcpy(&report, data.data() + at, sizeof report);
      if (report.rank < 0 || report.rank >= place_.size || report.rank == place_.rank) continue;
      RankStatus& status = region_.rank(report.rank);
      status.busy = report.busy;
      status.waits = report.waits;
      status.heartbeat = monotonic_ms() - report.age_ms;
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
    if (place_.rank == 0) end_run();
    arrived_.notify_all();
  }

  RankPlace place_;
  SharedRegion region_;
  std::vector<std::unique_ptr<Peer>> peers_;
  mutable std::mutex mutex_;  // guards Peer::received and failure_
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
