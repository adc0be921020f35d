// Messages between connecting ranks after the handshake, and waiting for them.
#pragma once
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/wait.h"
#include "comm/connect/handshake.h"
#include "comm/net/socket.h"

namespace bv {

using MeetingClock = std::chrono::steady_clock;
MeetingClock::time_point after(double seconds);
double seconds_since(MeetingClock::time_point);
std::string seconds_text(double timeout);  // "10 s"

// Ends the process on a stop signal: there is nothing to save yet.
void heed_stop_signal();
// Returns after 50 ms at the latest.
void wait_for_events(std::vector<pollfd>& items);
void pause_a_little();

[[noreturn]] void fail_to_meet(const char* what);

// A message that arrives in parts.
template <class T>
class Incoming {
 public:
  T value{};
  // Reads the bytes that have arrived. False: the connection has ended.
  bool receive(int fd) {
    const ssize_t n = recv(fd, reinterpret_cast<char*>(&value) + got_, sizeof value - got_, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    got_ += size_t(n);
    return n > 0;
  }
  bool complete() const { return got_ == sizeof value; }
  bool has(size_t bytes) const { return got_ >= bytes; }
  // Whether the bytes so far begin like this program's messages.
  bool is_ours() const {
    constexpr auto magic = Preamble::our_magic;
    return std::memcmp(&value, magic.data(), std::min(got_, magic.size())) == 0;
  }
  std::string text() const { return {reinterpret_cast<const char*>(&value), got_}; }

 private:
  size_t got_ = 0;
};

// Sends a message of the handshake: it fits into a new connection's buffer.
template <class T>
bool send_message(int fd, const T& message) {
  return send(fd, &message, sizeof message, MSG_NOSIGNAL) == ssize_t(sizeof message);
}

// given_up: other ranks are missing. training: the run has begun without this launcher, which can
// join at the next restart. too_late: the run has begun, and this launcher can't join.
enum class Verdict : int32_t {
  welcome,
  other_size,
  rank_taken,
  other_job,
  too_slow,
  given_up,
  training,
  too_late
};
struct Answer {
  std::array<char, 8> magic = Preamble::our_magic;
  Verdict verdict;
  Shape shape{};                   // rank 0's
  std::array<char, 512> reason{};  // given_up, too_late, training: why, padded
};

// An Answer on the wire, with room for a file descriptor. Points into itself.
struct AnswerMessage {
  explicit AnswerMessage(Answer with) : answer(with) {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  AnswerMessage(const AnswerMessage&) = delete;

  Answer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

// A launcher's line about the nodes it waits for. It is due only after a few seconds: a user needs
// that long to type the other nodes' commands.
class WaitingLine {
 public:
  explicit WaitingLine(const World& world) : world_(world) {}
  bool is_due() const;
  void say(const std::string& names);

 private:
  const World& world_;
  const MeetingClock::time_point begin_ = MeetingClock::now();
  bool said_ = false;
};

void answer(const Socket& peer, const Answer&, int fd = -1);  // fd is sent along

// Advice to the user if ranks don't connect.
std::string advice(const World&);
// "--nnodes 4", or "--nnodes 2:4" if fewer nodes are enough
std::string nodes_text(int least, int nodes);
// "--nnodes 4 -n 2", with --max-restarts if the two shapes differ in it
std::string text_of(const Shape&, const Shape& beside);

}  // namespace bv
