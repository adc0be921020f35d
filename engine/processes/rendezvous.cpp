// Rank 0 listens; the others connect and introduce themselves; once all have come, each gets an
// answer, on one machine with the shared memory's descriptor. If rank 0 gives up, they see the
// connection closed. On one machine the meeting point is an abstract Unix socket (no file, gone
// with the process) named after the user's id and World::master; between machines it is a TCP port,
// and peers must know World::master.
#include "engine/processes/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/checksum.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/processes/signals.h"
#include "kernels/comm/shared_region.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

struct Hello {
  static constexpr uint32_t magic_number = 0x62763031;
  uint32_t magic = magic_number;
  int32_t rank = 0, size = 0;
  uint32_t job = 0;
};
Hello hello_of(const World& world) {
  const uint32_t job = crc32c(std::as_bytes(std::span(world.master)));
  return {.rank = world.rank, .size = world.size, .job = job};
}

enum class Answer : int32_t { welcome, other_size, rank_taken };

// How long to wait. A stop signal ends the process: there is nothing to save yet.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }
  // True once `fd` is readable; false when time is up.
  bool wait_readable(int fd) const {
    while (!over()) {
      pollfd item{fd, POLLIN, 0};
      const int ready = poll(&item, 1, 50);
      if (stop_signal()) _exit(128 + stop_signal());
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
    return false;
  }
  void pause() const {
    if (stop_signal()) _exit(128 + stop_signal());
    usleep(10000);
  }

 private:
  Clock::time_point end_;
};

[[noreturn]] void fail(const char* what) {
  throw RunError(std::string("the processes can't meet: ") + what + ": " + std::strerror(errno));
}

// Where the peers of a run meet. A socket that can't be made is empty, with errno set.
class MeetingPoint {
 public:
  virtual ~MeetingPoint() = default;
  virtual std::string name() const = 0;
  virtual Socket bound() const = 0;
  virtual Socket connected() const = 0;   // to rank 0
  virtual bool admits(int fd) const = 0;  // may the process at the other end take part?
};

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

class UnixMeetingPoint final : public MeetingPoint {
 public:
  explicit UnixMeetingPoint(const World& world) : name_(world.master) {
    const std::string name = "barevision/" + std::to_string(getuid()) + "/" + world.master;
    address_.sun_family = AF_UNIX;
    // A leading zero byte makes it abstract. A name too long is cut at the front, where names
    // differ least.
    const size_t room = sizeof address_.sun_path - 1;
    const std::string end = name.size() <= room ? name : name.substr(name.size() - room);
    std::memcpy(address_.sun_path + 1, end.data(), end.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + end.size());
  }
  std::string name() const override { return name_; }
  Socket bound() const override { return with(bind); }
  Socket connected() const override { return with(connect); }
  bool admits(int fd) const override { return same_user(fd); }

 private:
  Socket with(int (*call)(int, const sockaddr*, socklen_t)) const {
    Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!made) fail("socket");
    return call(made.fd(), reinterpret_cast<const sockaddr*>(&address_), length_) == 0
               ? std::move(made)
               : Socket();
  }

  std::string name_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

class TcpMeetingPoint final : public MeetingPoint {
 public:
  explicit TcpMeetingPoint(const World& world)
      : host_(world.host), port_(std::to_string(world.port + 1)) {}
  std::string name() const override { return host_ + ":" + port_; }
  Socket bound() const override {
    return first_of(nullptr, [](int fd, const sockaddr* address, socklen_t length) {
      const int on = 1, off = 0;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (address->sa_family == AF_INET6)  // IPv4 as well
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      return bind(fd, address, length);
    });
  }
  Socket connected() const override { return first_of(host_.c_str(), connect); }
  bool admits(int) const override { return true; }  // decided by Hello

 private:
  // A socket for the host's first address on which `call` succeeds.
  template <class Call>
  Socket first_of(const char* host, Call call) const {
    addrinfo hints{}, *list = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = host ? 0 : AI_PASSIVE;
    if (const int error = getaddrinfo(host, port_.c_str(), &hints, &list))
      throw UserError("MASTER_ADDR=" + printable(host_) + ": " + gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    for (const int family : {AF_INET6, AF_INET})
      for (const addrinfo* at = list; at; at = at->ai_next) {
        if (at->ai_family != family) continue;
        Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!made || call(made.fd(), at->ai_addr, at->ai_addrlen) != 0) continue;
        return made;
      }
    return Socket();
  }

  std::string host_, port_;
};

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
  explicit Message(Answer text) : answer(text) {
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
  const Deadline deadline(std::min(timeout, 2.0));  // a previous run may be about to end
  while (true) {
    Socket listener = point.bound();
    if (listener) {
      if (listen(listener.fd(), world.size) != 0) fail("listen");
      return listener;
    }
    if (errno != EADDRINUSE) fail("bind");
    if (deadline.over())
      throw UserError("another run has the same meeting point " + point.name() +
                      ", or there are two of rank 0 (" + world.variables +
                      " in the environment): give each run its own");
    deadline.pause();
  }
}

void answer(const Socket& peer, Answer text, int fd) {
  Message message(text);
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

// Accepts one connection, or drops it if it isn't from this run.
void admit(const World& world, const MeetingPoint& point, Socket peer, std::vector<Socket>& peers) {
  Hello hello{.magic = 0};
  if (!point.admits(peer.fd()) || !Deadline(1).wait_readable(peer.fd())) return;
  if (recv(peer.fd(), &hello, sizeof hello, MSG_WAITALL) != ssize_t(sizeof hello)) return;
  if (hello.magic != Hello::magic_number || hello.rank < 1) return;
  if (hello.job != hello_of(world).job) return;
  if (hello.size != world.size || hello.rank >= world.size)
    return answer(peer, Answer::other_size, -1);
  if (peers[hello.rank]) return answer(peer, Answer::rank_taken, -1);
  peers[hello.rank] = std::move(peer);
}

std::string missing_ranks(const std::vector<Socket>& peers) {
  std::string list;
  for (size_t r = 1; r < peers.size(); ++r)
    if (!peers[r]) list += (list.empty() ? "" : ", ") + std::to_string(r);
  return list;
}

std::vector<Socket> gather(const World& world, const MeetingPoint& point, double timeout) {
  const Socket listener = listen_at(world, point, timeout);
  const Deadline deadline(timeout);
  std::vector<Socket> peers(world.size);
  while (!missing_ranks(peers).empty()) {
    if (!deadline.wait_readable(listener.fd()))
      throw UserError("rank 0 waited " + seconds(timeout) + " for rank " + missing_ranks(peers) +
                      advice(world));
    Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer) admit(world, point, std::move(peer), peers);
  }
  return peers;
}

// ---- the others ---------------------------------------------------------------------------------

// A connection to rank 0; empty when time is up.
Socket reach(const MeetingPoint& point, const Deadline& deadline) {
  while (!deadline.over()) {
    if (Socket made = point.connected()) {
      if (point.admits(made.fd())) return made;
    } else if (errno == EACCES || errno == EPERM || errno == EAFNOSUPPORT) {
      fail("connect");
    }
    deadline.pause();
  }
  return Socket();
}

// Rank 0's answer and the file descriptor that came with it; nothing if rank 0 gave up.
std::optional<Answer> receive(const Socket& from, int& fd) {
  Message message(Answer::welcome);
  if (recvmsg(from.fd(), &message.header, MSG_CMSG_CLOEXEC) != ssize_t(sizeof message.answer))
    return std::nullopt;
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (control && control->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  return message.answer;
}

// A connection to rank 0, which has sent its answer and, on one machine, a file descriptor.
Socket join(const World& world, const MeetingPoint& point, double timeout, int& fd) {
  const Deadline deadline(timeout);
  const std::string self = "rank " + std::to_string(world.rank);
  Socket rank0 = reach(point, deadline);
  if (!rank0)
    throw UserError(self + " waited " + seconds(timeout) + " for rank 0 at " + point.name() +
                    advice(world));
  const Hello hello = hello_of(world);
  if (send(rank0.fd(), &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello)) fail("send");
  // Rank 0 itself reports whom it waits for, and its exit is noticed here: wait a little longer.
  if (!Deadline(timeout + 1).wait_readable(rank0.fd()))
    throw UserError(self + " waited " + seconds(timeout) + " for the other ranks" + advice(world));
  const auto reply = receive(rank0, fd);
  if (!reply) throw UserError(self + ": rank 0 ended before all ranks had come" + advice(world));
  if (reply == Answer::other_size)
    throw UserError(self + " of " + std::to_string(world.size) +
                    ": rank 0 has another number of processes" + advice(world));
  if (reply == Answer::rank_taken)
    throw UserError("there are two processes of " + self + advice(world));
  return rank0;
}

}  // namespace

int meet_peers(const World& world, double timeout) {
  if (world.master.empty())
    throw UserError("the environment (" + world.variables +
                    ") doesn't say which job this process belongs to; give -n to start the "
                    "processes here");
  const UnixMeetingPoint point(world);
  int fd = -1;
  if (world.rank > 0) {
    join(world, point, timeout, fd);
    if (fd < 0)
      throw RunError("rank " + std::to_string(world.rank) + ": rank 0 sent no memory to share");
    return fd;
  }
  const std::vector<Socket> peers = gather(world, point, timeout);
  const SharedRegion region = SharedRegion::create(world.size);
  for (int r = 1; r < world.size; ++r) answer(peers[r], Answer::welcome, region.fd());
  fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail("dup");
  return fd;
}

std::vector<Socket> meet_over_network(const World& world, double timeout) {
  if (world.host.empty())
    throw UserError("the processes are on several machines (" + std::to_string(world.local_size) +
                    " of " + std::to_string(world.size) +
                    " here): set MASTER_ADDR to the machine of rank 0, the same for all ranks");
  const TcpMeetingPoint point(world);
  std::vector<Socket> peers;
  if (world.rank > 0) {
    int none = -1;
    peers.push_back(join(world, point, timeout, none));
  } else {
    peers = gather(world, point, timeout);
    for (int r = 1; r < world.size; ++r) answer(peers[r], Answer::welcome, -1);
  }
  for (const Socket& peer : peers)
    if (peer) send_at_once(peer);
  return peers;
}

}  // namespace bv
