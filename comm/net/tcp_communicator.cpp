// A connection carries frames: data of collectives, and reports on the sender's state. One thread
// reads and writes all of them without blocking, so a peer that is stopped in the middle of a frame
// delays nobody. Rank 0 sends the reports on all ranks to every rank. A rank that detects a failure
// of the run sends the reason to rank 0, which forwards it to the others.
#include "comm/net/tcp_communicator.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
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
constexpr auto farewell = std::chrono::seconds(1);    // for the last frames to be sent
constexpr auto last_words = std::chrono::seconds(2);  // then serve() ends a failed run

enum class Kind : uint32_t { data, state, left, end };
struct FrameHead {
  Kind kind;
  uint32_t bytes;
};
// Part of the protocol (Preamble::our_version): a larger frame is refused unread.
constexpr size_t max_frame = 64 << 20;
constexpr size_t chunk = 1 << 20;  // bytes; a frame's memory grows as it arrives

// Head of a message that ends the run; the text follows.
struct EndHead {
  int32_t culprit;
};
constexpr size_t max_reason = 500;

struct RankReport {
  int32_t rank;
  Busy busy;
  uint64_t waits;
  int64_t age_ms;  // since its last heartbeat
};

// Frames that are still to be sent over a connection. Thread-safe.
class Outbox {
 public:
  void push(Kind kind, const void* data, size_t bytes) {
    const FrameHead head{kind, uint32_t(bytes)};
    const std::lock_guard lock(mutex_);
    append(&head, sizeof head);
    append(data, bytes);
  }
  // Sends what the connection takes now. False: the connection has ended.
  bool send_to(int fd) {
    const std::lock_guard lock(mutex_);
    while (sent_ < bytes_.size()) {
      const ssize_t n = send(fd, bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN;
      sent_ += size_t(n);
    }
    bytes_.clear();
    sent_ = 0;
    return true;
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return bytes_.empty();
  }

 private:
  void append(const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  mutable std::mutex mutex_;
  Bytes bytes_;
  size_t sent_ = 0;
};

// A frame that arrives in parts.
class Inbox {
 public:
  enum class State { ended, waiting, complete, nonsense };
  // Takes what has arrived, up to the end of a frame.
  State receive(int fd) {
    while (got_ < sizeof head_ + head_.bytes) {
      const bool in_head = got_ < sizeof head_;
      const size_t at = in_head ? got_ : got_ - sizeof head_,
                   size = in_head ? sizeof head_ : head_.bytes;
      const size_t wanted = std::min(size - at, chunk);
      if (!in_head) data_.resize(at + wanted);
      const ssize_t n =
          recv(fd, (in_head ? reinterpret_cast<std::byte*>(&head_) : data_.data()) + at, wanted, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return State::waiting;
      if (n <= 0) return State::ended;
      got_ += size_t(n);
      if (got_ == sizeof head_ && (head_.bytes > max_frame || head_.kind > Kind::end))
        return State::nonsense;
    }
    got_ = 0;
    return State::complete;
  }
  Kind kind() const { return head_.kind; }
  Bytes take() {
    head_ = {};
    return std::exchange(data_, {});
  }

 private:
  FrameHead head_{};
  Bytes data_;
  size_t got_ = 0;
};

struct Peer {
  int rank;
  Socket socket;
  Outbox outbox;
  Inbox inbox;
  std::deque<Bytes> received;  // not yet taken by a collective
  std::atomic<bool> open{true};
};

// Makes a peer's text printable.
std::string reason_of(const Bytes& data) {
  std::string text;
  for (size_t i = sizeof(EndHead); i < data.size() && text.size() < max_reason; ++i)
    text += data[i] < std::byte{' '} ? ' ' : static_cast<char>(data[i]);
  return text;
}

class TcpCommunicator final : public HostsCommunicator {
 public:
  TcpCommunicator(const RankPlace& place, std::vector<Socket> sockets, int region_fd)
      : HostsCommunicator(place.rank, place.size),
        place_(place),
        region_(SharedRegion::open(dup(region_fd))) {
    for (int r = 0; r < place.size; ++r) {
      region_.rank(r).state = RankState::here;
      region_.rank(r).heartbeat = monotonic_ms();
    }
    if (!wake_) throw std::runtime_error(std::string("eventfd: ") + std::strerror(errno));
    for (size_t i = 0; i < sockets.size(); ++i)
      if (sockets[i]) peers_.push_back(std::make_unique<Peer>(int(i), std::move(sockets[i])));
    thread_ = std::thread([this] { serve(); });
  }
  ~TcpCommunicator() override {
    for (const auto& peer : peers_) send_frame(*peer, Kind::left, nullptr, 0);
    closing_ = true;
    eventfd_write(wake_.fd(), 1);
    thread_.join();
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
  void reduce_scatter(float* data, size_t count, Stream) override {
    sum(data, count * size_t(place_.size));
  }
  void exchange(std::span<const Transfer>, Stream) override {
    throw std::logic_error("hosts of several machines exchange no messages");
  }
  std::unique_ptr<Communicator> group(std::span<const int>) override {
    throw std::logic_error("hosts of several machines form no groups");
  }
  void barrier() override { all_reduce_scalar(0); }
  void busy(Busy now) override {
    region_.rank(place_.rank).busy = now;
    send_report();
  }
  void end_run(const std::string& why) override { tell_end(why, -1); }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void introduce(std::vector<Rank> by_rank) override {
    const std::lock_guard lock(mutex_);
    ranks_ = std::move(by_rank);
  }
  std::string name(int rank) const override {
    const std::lock_guard lock(mutex_);
    return ranks_.empty() ? name_of(nullptr, rank) : ranks_[size_t(rank)].name;
  }
  std::string look(PeerTimeout& patience, int awaited) override {
    if (region_.control().ending) _exit(1);
    if (std::string why = failure(); !why.empty()) return why;
    const auto others = [this](int rank) { return rank != place_.rank; };
    int named = silent(awaited);
    return patience.look(region_, place_.size, others, named);
  }
  [[noreturn]] void end(const std::string& why, int culprit) override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) culprit = culprit_;
    }
    tell_end(why, culprit);
    // If the culprit ran on this machine, its launcher knows the cause and prints it first. Else
    // the culprit is stored with the line of the rank that prints first.
    end_process(region_, place_, why, culprit >= 0 && is_here(culprit), culprit);
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

  // Rank 0 receives the other ranks' parts in rank order, then sends the answer to all of them.
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
      throw std::runtime_error("rank " + std::to_string(from) + " sent " +
                               std::to_string(got.size()) + " bytes instead of " +
                               std::to_string(wanted) +
                               "; start all ranks with the same program and options");
  }

  static void put(const Bytes& got, void* to, size_t wanted, int from) {
    require_bytes(got, wanted, from);
    std::copy(got.begin(), got.end(), static_cast<std::byte*>(to));
  }

  // The next data from a peer. Ends the process if the peer or the run has failed.
  Bytes take(Peer& peer) {
    std::unique_lock lock(mutex_);
    // Rank 0 knows best who is missing: the others give it 2 s to report.
    PeerTimeout patience(place_.timeout + (place_.rank > 0 ? 2 : 0), this);
    while (peer.received.empty()) {
      if (arrived_.wait_for(lock, tick, [&] { return !peer.received.empty(); })) break;
      lock.unlock();
      std::string why = look(patience, peer.rank);
      if (why.empty() && !peer.open) why = name(peer.rank) + " has ended before this one";
      if (!why.empty()) end(why, -1);
      lock.lock();
    }
    Bytes data = std::move(peer.received.front());
    peer.received.pop_front();
    return data;
  }

  // The rank that a timeout names: one without a heartbeat, as `awaited` may itself be waiting.
  int silent(int awaited) const {
    for (int r = 0; r < place_.size; ++r)
      if (r != place_.rank && !has_heartbeat(region_.rank(r))) return r;
    return awaited;
  }
  bool is_here(int rank) const {
    const std::lock_guard lock(mutex_);
    return !ranks_.empty() && ranks_[size_t(rank)].here;
  }

  void tell_end(const std::string& why, int culprit) {
    Bytes frame(sizeof(EndHead) + why.size());
    const EndHead head{culprit};
    std::memcpy(frame.data(), &head, sizeof head);
    std::memcpy(frame.data() + sizeof head, why.data(), why.size());
    for (const auto& peer : peers_) send_frame(*peer, Kind::end, frame.data(), frame.size());
  }
  void note_end(const Bytes& data) {
    EndHead head{-1};
    if (data.size() < sizeof head) return;
    std::memcpy(&head, data.data(), sizeof head);
    if (head.culprit >= place_.size) return;
    note_failure(reason_of(data), head.culprit);
  }
  // Only the first failure counts; rank 0 forwards it.
  void note_failure(const std::string& why, int culprit) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = why;
      culprit_ = culprit;
    }
    end_at_ = std::min(end_at_, Clock::now() + last_words);
    if (place_.rank == 0) tell_end(why, culprit);
    arrived_.notify_all();
  }

  // Never blocks. What can't be sent now is sent by serve().
  void send_frame(Peer& peer, Kind kind, const void* data, size_t bytes) {
    if (bytes > max_frame)
      throw std::invalid_argument("a message of " + std::to_string(bytes) +
                                  " bytes is too large for the hosts' connection");
    if (!peer.open) return;
    peer.outbox.push(kind, data, bytes);
    peer.outbox.send_to(peer.socket.fd());  // serve() notices a lost connection
    if (!peer.outbox.empty()) eventfd_write(wake_.fd(), 1);
  }

  void send_report() {
    std::vector<RankReport> reports;
    for (int r = 0; r < place_.size; ++r) {
      if (place_.rank > 0 && r != place_.rank) continue;
      const RankStatus& status = region_.rank(r);
      reports.push_back({r, status.busy, status.waits, monotonic_ms() - status.heartbeat});
    }
    for (const auto& peer : peers_)
      if (peer->outbox.empty())  // otherwise the peer is slow and gets the next report
        send_frame(*peer, Kind::state, reports.data(), reports.size() * sizeof(RankReport));
  }

  void serve() {
    auto last_beat = Clock::now();
    Clock::time_point give_up = Clock::time_point::max();
    while (true) {
      region_.rank(place_.rank).heartbeat = monotonic_ms();
      bool sending = false;
      std::vector<pollfd> items{{wake_.fd(), POLLIN, 0}};
      for (const auto& peer : peers_) {
        const bool waits = peer->open && !peer->outbox.empty();
        sending |= waits;
        items.push_back(
            {peer->open ? peer->socket.fd() : -1, short(POLLIN | (waits ? POLLOUT : 0)), 0});
      }
      if (closing_) give_up = std::min(give_up, Clock::now() + farewell);
      if (closing_ && (!sending || Clock::now() > give_up)) return;
      wait_for_files(items, int(tick.count()));
      if (eventfd_t count; items[0].revents) eventfd_read(wake_.fd(), &count);
      if (Clock::now() > end_at_ && !closing_) end(failure(), -1);
      for (size_t i = 0; i < peers_.size(); ++i) {
        const short events = items[1 + i].revents;
        if (events & POLLOUT) peers_[i]->outbox.send_to(peers_[i]->socket.fd());
        if (events & ~POLLOUT) receive(*peers_[i]);
      }
      if (Clock::now() - last_beat < beat) continue;
      last_beat = Clock::now();
      send_report();
    }
  }

  void receive(Peer& peer) {
    const Inbox::State state = peer.inbox.receive(peer.socket.fd());
    if (state == Inbox::State::ended)
      return lose(peer, " has died, or its machine can't be reached");
    if (state == Inbox::State::nonsense)
      return lose(peer, " sent data that is not a message of this program");
    if (state == Inbox::State::waiting) return;
    const Kind kind = peer.inbox.kind();
    Bytes data = peer.inbox.take();
    if (kind == Kind::state) return note_reports(data);
    if (kind == Kind::end) return note_end(data);
    const std::lock_guard lock(mutex_);
    if (kind == Kind::data) peer.received.push_back(std::move(data));
    if (kind == Kind::left) peer.open = false;
    arrived_.notify_all();
  }

  void note_reports(const Bytes& data) {
    for (size_t at = 0; at + sizeof(RankReport) <= data.size(); at += sizeof(RankReport)) {
      RankReport report;
      std::memcpy(&report, data.data() + at, sizeof report);
      if (report.rank < 0 || report.rank >= place_.size || is_own(report.rank)) continue;
      RankStatus& status = region_.rank(report.rank);
      status.busy = report.busy;
      status.waits = report.waits;
      status.heartbeat = monotonic_ms() - report.age_ms;
    }
  }

  void lose(Peer& peer, const char* why) {
    note_failure(name(peer.rank) + why, peer.rank);
    peer.open = false;
  }
  // Whether the rank writes its status to this machine's region itself, as all ranks here do.
  bool is_own(int rank) const { return rank == place_.rank || is_here(rank); }

  RankPlace place_;
  SharedRegion region_;
  Socket wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // wakes serve() to send
  std::vector<std::unique_ptr<Peer>> peers_;
  mutable std::mutex mutex_;  // guards Peer::received, ranks_, failure_ and culprit_
  Condition arrived_;
  std::vector<Rank> ranks_;
  std::string failure_;
  int culprit_ = -1;
  Clock::time_point end_at_ = Clock::time_point::max();  // when serve() ends the run itself
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<HostsCommunicator> make_tcp_communicator(const RankPlace& place,
                                                         std::vector<Socket> sockets,
                                                         int region_fd) {
  return std::make_unique<TcpCommunicator>(place, std::move(sockets), region_fd);
}

}  // namespace bv
