// Rank 0 listens; the others connect and prove that they belong (greeting.h); once all have come, each
// gets an answer, on one machine with the shared memory's descriptor. If rank 0 gives up, they see
// the connection closed. Strangers may connect, be silent or talk nonsense: every connection has a
// second for its whole greeting, all are served by one poll, and one deadline holds for all.
#include "engine/processes/rendezvous.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/processes/greeting.h"
#include "engine/processes/meeting_point.h"
#include "engine/processes/signals.h"
#include "kernels/comm/shared_region.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double greeting_seconds = 1;
constexpr size_t max_guests = 512;  // connections in their greeting; more wait in the backlog

enum class Verdict : int32_t { welcome, other_size, rank_taken, other_job, too_slow };
struct Answer {
  std::array<char, 8> magic = Preamble::our_magic;
  Verdict verdict;
};

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A stop signal ends the process: there is nothing to save yet.
void heed_stop_signal() {
  if (stop_signal()) _exit(128 + stop_signal());
}
// Returns at the latest after 50 ms.
void wait_for_events(std::vector<pollfd>& items) {
  if (poll(items.data(), items.size(), 50) < 0)
    for (pollfd& item : items) item.revents = 0;
  heed_stop_signal();
}
void pause() {
  usleep(10000);
  heed_stop_signal();
}

[[noreturn]] void fail(const char* what) {
  throw RunError(std::string("the processes can't meet: ") + what + ": " + std::strerror(errno));
}

// A message that arrives in parts.
template <class T>
class Incoming {
 public:
  T value{};
  // Takes what has arrived. False: the connection has ended.
  bool receive(int fd) {
    const ssize_t n = recv(fd, reinterpret_cast<char*>(&value) + got_, sizeof value - got_, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    got_ += size_t(n);
    return n > 0;
  }
  bool complete() const { return got_ == sizeof value; }
  // As far as it has come: does it begin as this program's messages do?
  bool is_ours() const {
    constexpr auto magic = Preamble::our_magic;
    return std::memcmp(&value, magic.data(), std::min(got_, magic.size())) == 0;
  }
  std::string text() const { return {reinterpret_cast<const char*>(&value), got_}; }

 private:
  size_t got_ = 0;
};

// Messages of a greeting are small: they fit into a new connection's buffer.
template <class T>
bool send_message(int fd, const T& message) {
  return send(fd, &message, sizeof message, MSG_NOSIGNAL) == ssize_t(sizeof message);
}

void send_at_once(const Socket& socket) {
  const int on = 1;  // fails on a Unix socket, which has no such option
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string seconds(double timeout) { return format_number(timeout, 6) + " s"; }

std::string advice(const World& world) {
  return " (" + world.variables +
         " in the environment say who takes part; --timeout how long to wait); start every rank, "
         "or give -n " +
         std::to_string(world.size) + " to have them started here";
}

// An Answer on the wire, with room for a file descriptor. Points into itself.
struct Message {
  explicit Message(Verdict verdict = {}) : answer{.verdict = verdict} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  Message(const Message&) = delete;

  Answer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

// ---- rank 0 -------------------------------------------------------------------------------------

Socket listen_at(const World& world, const MeetingPoint& point, double timeout) {
  const auto end = after(std::min(timeout, 2.0));  // a previous run may be about to end
  while (true) {
    Socket listener = point.bound();
    if (listener) {
      if (listen(listener.fd(), std::max(world.size, SOMAXCONN)) != 0) fail("listen");
      return listener;
    }
    if (errno != EADDRINUSE) fail("bind");
    if (Clock::now() >= end)
      throw UserError("another run has the same meeting point " + point.name() +
                      ", or there are two of rank 0 (" + world.variables +
                      " in the environment): give each run its own");
    pause();
  }
}

void answer(const Socket& peer, Verdict verdict, int fd) {
  Message message(verdict);
  if (fd >= 0) {
    cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  } else {
    message.header.msg_controllen = 0;
  }
  // A peer that is gone is noticed at the first barrier.
  if (sendmsg(peer.fd(), &message.header, MSG_NOSIGNAL) < 0) return;
}

// A connection in its greeting.
class Guest {
 public:
  Guest(const World& world, Socket socket) : world_(world), socket_(std::move(socket)) {}
  int fd() const { return socket_.fd(); }
  const Hello& hello() const { return hello_.value; }
  bool has_proved() const { return proof_.complete(); }
  // Takes what has arrived and answers a Hello. False: it has ended, is a stranger's, or its second
  // is over; `reason` says why if it came from this program.
  bool proceed(bool readable, std::string& reason) {
    if (Clock::now() >= end_) {
      if (hello_.complete()) answer(socket_, Verdict::too_slow, -1);
      return false;
    }
    if (!readable) return true;
    if (hello_.complete()) return receive_proof(reason);
    return hello_.receive(fd()) && hello_.is_ours() && (!hello_.complete() || challenge(reason));
  }
  Socket& socket() { return socket_; }

 private:
  bool challenge(std::string& reason) {
    const Preamble& theirs = hello().preamble;
    challenge_ = challenge_of(world_, hello());
    if (theirs.version != Preamble::our_version)
      reason = "it is another version of this program";
    else if (theirs.has_secret != challenge_.preamble.has_secret)
      reason = "BAREVISION_SECRET is set on one side only";
    return send_message(fd(), challenge_) && reason.empty();
  }
  bool receive_proof(std::string& reason) {
    if (!proof_.receive(fd())) return false;
    if (!proof_.complete()) return true;
    if (equal(proof_.value.proof, proof_of_peer(world_, hello(), challenge_.preamble.nonce)))
      return true;
    reason = "it has another BAREVISION_SECRET";
    return false;
  }

  const World& world_;
  Socket socket_;
  Clock::time_point end_ = after(greeting_seconds);
  Incoming<Hello> hello_;
  Challenge challenge_;
  Incoming<Proof> proof_;
};

class Gathering {
 public:
  Gathering(const World& world, const MeetingPoint& point, double timeout)
      : world_(world),
        point_(point),
        timeout_(timeout),
        listener_(listen_at(world, point, timeout)),
        peers_(size_t(world.size)) {}

  std::vector<Socket> run() {
    const auto end = after(timeout_);
    while (!missing().empty()) {
      if (Clock::now() >= end)
        throw UserError("rank 0 waited " + seconds(timeout_) + " for rank " + missing() +
                        turned_away() + advice(world_));
      look();
    }
    return std::move(peers_);
  }

 private:
  void look() {
    std::vector<pollfd> items{{guests_.size() < max_guests ? listener_.fd() : -1, POLLIN, 0}};
    for (const Guest& guest : guests_) items.push_back({guest.fd(), POLLIN, 0});
    for (const Socket& peer : peers_) items.push_back({peer.fd(), POLLIN, 0});
    wait_for_events(items);
    // One that has come has nothing to say: it has ended.
    for (size_t r = 0; r < peers_.size(); ++r)
      if (items[1 + guests_.size() + r].revents) peers_[r] = Socket();
    std::vector<Guest> left;
    for (size_t i = 0; i < guests_.size(); ++i) {
      std::string reason;
      if (!guests_[i].proceed(items[1 + i].revents != 0, reason))
        refused_ = reason.empty() ? refused_ : reason;
      else if (guests_[i].has_proved())
        seat(guests_[i]);
      else
        left.push_back(std::move(guests_[i]));
    }
    guests_ = std::move(left);
    if (items[0].revents) accept_all();
  }

  void accept_all() {
    while (guests_.size() < max_guests) {
      Socket made(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!made) return;
      if (point_.admits(made.fd())) guests_.emplace_back(world_, std::move(made));
    }
  }

  void seat(Guest& guest) {
    const int rank = guest.hello().rank;
    if (guest.hello().job != job_of(world_) || rank < 1)
      return answer(guest.socket(), Verdict::other_job, -1);
    if (guest.hello().size != world_.size || rank >= world_.size)
      return answer(guest.socket(), Verdict::other_size, -1);
    if (peers_[size_t(rank)]) return answer(guest.socket(), Verdict::rank_taken, -1);
    peers_[size_t(rank)] = std::move(guest.socket());
  }

  std::string missing() const {
    std::string list;
    for (size_t r = 1; r < peers_.size(); ++r)
      if (!peers_[r]) list += (list.empty() ? "" : ", ") + std::to_string(r);
    return list;
  }
  std::string turned_away() const {
    return refused_.empty() ? "" : "; one that came was turned away: " + refused_;
  }

  const World& world_;
  const MeetingPoint& point_;
  double timeout_;
  Socket listener_;
  std::vector<Guest> guests_;
  std::vector<Socket> peers_;  // by rank
  std::string refused_;        // why the last one was
};

// ---- the others ---------------------------------------------------------------------------------

// Waits for input. False: `end` has come.
bool wait_readable(int fd, Clock::time_point end) {
  std::vector<pollfd> items{{fd, POLLIN, 0}};
  while (!items[0].revents && Clock::now() < end) wait_for_events(items);
  return items[0].revents != 0;
}

// Rank 0's Challenge to `hello`; nothing if the connection ends before it has come: rank 0 may be
// about to end, or serve others first.
std::optional<Challenge> challenge_from(const Socket& rank0, const MeetingPoint& point,
                                        const Hello& hello, Clock::time_point end) {
  Incoming<Challenge> challenge;
  if (!send_message(rank0.fd(), hello)) return std::nullopt;
  while (!challenge.complete()) {
    if (!wait_readable(rank0.fd(), end) || !challenge.receive(rank0.fd())) return std::nullopt;
    if (!challenge.is_ours())
      throw UserError("at " + point.name() + " another program answers (\"" +
                      printable(challenge.text(), 24) +
                      "\"), not rank 0; give the run another port");
  }
  return challenge.value;
}

// Throws UserError unless rank 0 is of this run.
void check(const World& world, const Hello& hello, const Challenge& challenge) {
  const Preamble& theirs = challenge.preamble;
  const std::string self = "rank " + std::to_string(world.rank);
  if (theirs.version != Preamble::our_version)
    throw UserError(self + ": rank 0 is another version of this program; start the same on all");
  if (theirs.has_secret != hello.preamble.has_secret)
    throw UserError("BAREVISION_SECRET is set for " + (theirs.has_secret ? "rank 0" : self) +
                    ", not for " + (theirs.has_secret ? self : "rank 0") +
                    "; set the same for all ranks");
  if (!equal(challenge.proof, proof_of_rank0(world, hello, theirs.nonce)))
    throw UserError(self + ": rank 0 has another BAREVISION_SECRET; set the same for all ranks");
}

// A connection to rank 0 after both sides' greetings; empty when `end` has come.
Socket reach(const World& world, const MeetingPoint& point, Clock::time_point end) {
  for (; Clock::now() < end; pause()) {
    Socket made = point.connected();
    if (!made && (errno == EACCES || errno == EPERM || errno == EAFNOSUPPORT)) fail("connect");
    if (!made || !point.admits(made.fd())) continue;
    const Hello hello = hello_of(world);
    const auto challenge = challenge_from(made, point, hello, end);
    if (!challenge) continue;
    check(world, hello, *challenge);
    const Proof proof{proof_of_peer(world, hello, challenge->preamble.nonce)};
    if (send_message(made.fd(), proof)) return made;
  }
  return Socket();
}

// Rank 0's answer and the file descriptor that came with it; nothing if rank 0 gave up.
std::optional<Verdict> receive(const Socket& from, int& fd) {
  Message message;
  if (recvmsg(from.fd(), &message.header, MSG_CMSG_CLOEXEC) != ssize_t(sizeof message.answer) ||
      message.answer.magic != Preamble::our_magic)
    return std::nullopt;
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (control && control->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  return message.answer.verdict;
}

// A connection to rank 0, which has sent its answer and, on one machine, a file descriptor.
Socket join(const World& world, const MeetingPoint& point, double timeout, int& fd) {
  const auto end = after(timeout);
  const std::string self = "rank " + std::to_string(world.rank);
  Socket rank0;
  std::optional<Verdict> reply;
  std::string others;  // who is at the meeting point instead
  do {
    rank0 = reach(world, point, end);
    if (!rank0)
      throw UserError(self + " waited " + seconds(timeout) + " for rank 0 at " + point.name() +
                      others + advice(world));
    // Rank 0 itself reports whom it waits for, and its exit is noticed here: wait a little longer.
    if (!wait_readable(rank0.fd(), after(timeout + 1)))
      throw UserError(self + " waited " + seconds(timeout) + " for the other ranks" +
                      advice(world));
    reply = receive(rank0, fd);
    // Perhaps a previous attempt of the same job, about to end.
    if (reply == Verdict::other_job) others = ", where another job's processes meet", pause();
  } while (reply == Verdict::other_job || reply == Verdict::too_slow);
  if (!reply) throw UserError(self + ": rank 0 ended before all ranks had come" + advice(world));
  if (reply == Verdict::other_size)
    throw UserError(self + " of " + std::to_string(world.size) +
                    ": rank 0 has another number of processes" + advice(world));
  if (reply == Verdict::rank_taken)
    throw UserError("there are two processes of " + self + advice(world));
  return rank0;
}

}  // namespace

int meet_peers(const World& world, double timeout) {
  if (world.master.empty())
    throw UserError("the environment (" + world.variables +
                    ") doesn't say which job this process belongs to; give -n to start the "
                    "processes here");
  const auto point = meeting_point_here(world);
  int fd = -1;
  if (world.rank > 0) {
    join(world, *point, timeout, fd);
    if (fd < 0)
      throw RunError("rank " + std::to_string(world.rank) + ": rank 0 sent no memory to share");
    return fd;
  }
  const std::vector<Socket> peers = Gathering(world, *point, timeout).run();
  const SharedRegion region = SharedRegion::create(world.size);
  for (int r = 1; r < world.size; ++r) answer(peers[r], Verdict::welcome, region.fd());
  fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail("dup");
  return fd;
}

std::vector<Socket> meet_over_network(const World& world, double timeout) {
  if (world.host.empty())
    throw UserError("the processes are on several machines (" + std::to_string(world.local_size) +
                    " of " + std::to_string(world.size) +
                    " here): set MASTER_ADDR to the machine of rank 0, the same for all ranks");
  const auto point = meeting_point_of_network(world);
  std::vector<Socket> peers;
  if (world.rank > 0) {
    int none = -1;
    peers.push_back(join(world, *point, timeout, none));
  } else {
    peers = Gathering(world, *point, timeout).run();
    for (int r = 1; r < world.size; ++r) answer(peers[r], Verdict::welcome, -1);
  }
  for (const Socket& peer : peers)
    if (peer) send_at_once(peer);
  return peers;
}

}  // namespace bv
