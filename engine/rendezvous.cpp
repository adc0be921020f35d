// The peers meet at an abstract Unix socket (no file, gone with the process) whose name holds the
// user's id and World::master. Rank 0 listens; the others connect and say who they are; when all
// are there each gets an answer and the memory's descriptor with it. If rank 0 gives up, they see
// the connection closed.
#include "engine/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "kernels/cpu/shared_region.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct Hello {
  static constexpr uint32_t magic_number = 0x62763031;
  uint32_t magic = magic_number;
  int32_t rank = 0, size = 0;
};

enum class Answer : int32_t { welcome, other_size, rank_taken };

// Until when to wait. A signal to stop ends the process: there is nothing yet to save.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }
  // True when `fd` can be read; false when time is over.
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

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const World& world) {
  const std::string name = "barevision/" + std::to_string(getuid()) + "/" + world.master;
  Address address;
  address.name.sun_family = AF_UNIX;
  // A leading zero byte makes it abstract. What doesn't fit is dropped from the front, where names
  // differ least.
  const size_t room = sizeof address.name.sun_path - 1;
  const std::string end = name.size() <= room ? name : name.substr(name.size() - room);
  std::memcpy(address.name.sun_path + 1, end.data(), end.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + end.size());
  return address;
}

Socket make_socket() {
  Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!made) fail("socket");
  return made;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

std::string seconds(double timeout) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", timeout);
  return text;
}

std::string advice(const World& world) {
  return " (" + world.variables +
         " in the environment say who takes part; --timeout how long to wait); start every rank, "
         "or give -n " +
         std::to_string(world.size) + " to have them started here";
}

// ---- rank 0 -------------------------------------------------------------------------------------

Socket listen_at(const World& world, double timeout) {
  const Address address = address_of(world);
  const Deadline deadline(std::min(timeout, 2.0));  // the last run may be about to go
  Socket listener = make_socket();
  while (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address.name), address.length)) {
    if (errno != EADDRINUSE) fail("bind");
    if (deadline.over())
      throw UserError("another run has the same meeting point " + world.master +
                      ", or there are two of rank 0 (" + world.variables +
                      " in the environment): give each run its own");
    deadline.pause();
  }
  if (listen(listener.fd(), world.size) != 0) fail("listen");
  return listener;
}

void answer(const Socket& peer, Answer text, int fd) {
  iovec part{&text, sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // A peer that is gone is missed at the first barrier.
  if (sendmsg(peer.fd(), &message, MSG_NOSIGNAL) < 0) return;
}

// Takes one connection in. Whoever doesn't belong to the run is turned away.
void admit(const World& world, Socket peer, std::vector<Socket>& peers) {
  Hello hello{.magic = 0};
  if (!same_user(peer.fd()) || !Deadline(1).wait_readable(peer.fd())) return;
  if (recv(peer.fd(), &hello, sizeof hello, 0) != ssize_t(sizeof hello)) return;
  if (hello.magic != Hello::magic_number || hello.rank < 1) return;
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

int gather(const World& world, double timeout) {
  const Socket listener = listen_at(world, timeout);
  const Deadline deadline(timeout);
  std::vector<Socket> peers(world.size);
  while (!missing_ranks(peers).empty()) {
    if (!deadline.wait_readable(listener.fd()))
      throw UserError("rank 0 waited " + seconds(timeout) + " for rank " + missing_ranks(peers) +
                      advice(world));
    Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer) admit(world, std::move(peer), peers);
  }
  const SharedRegion region = SharedRegion::create(world.size);
  for (int r = 1; r < world.size; ++r) answer(peers[r], Answer::welcome, region.fd());
  const int fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail("dup");
  return fd;
}

// ---- the others ---------------------------------------------------------------------------------

// A connection with rank 0, or none when time is over.
Socket reach(const Address& address, const Deadline& deadline) {
  while (!deadline.over()) {
    Socket made = make_socket();
    if (connect(made.fd(), reinterpret_cast<const sockaddr*>(&address.name), address.length) == 0) {
      if (same_user(made.fd())) return made;
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      fail("connect");
    }
    deadline.pause();
  }
  return Socket();
}

struct Reply {
  Answer answer;
  int fd;
};

// Nothing where rank 0 gave up.
std::optional<Reply> receive(const Socket& from) {
  Reply reply{Answer::welcome, -1};
  iovec part{&reply.answer, sizeof reply.answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(from.fd(), &message, MSG_CMSG_CLOEXEC) != ssize_t(sizeof reply.answer))
    return std::nullopt;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&reply.fd, CMSG_DATA(header), sizeof reply.fd);
  return reply;
}

int join(const World& world, double timeout) {
  const Deadline deadline(timeout);
  const std::string self = "rank " + std::to_string(world.rank);
  const Socket rank0 = reach(address_of(world), deadline);
  if (!rank0) throw UserError(self + " waited " + seconds(timeout) + " for rank 0" + advice(world));
  const Hello hello{.rank = world.rank, .size = world.size};
  if (send(rank0.fd(), &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello)) fail("send");
  // Rank 0 says itself whom it waits for; its end is seen here, so a little longer is long enough.
  if (!Deadline(timeout + 1).wait_readable(rank0.fd()))
    throw UserError(self + " waited " + seconds(timeout) + " for the other ranks" + advice(world));
  const auto reply = receive(rank0);
  if (!reply) throw UserError(self + ": rank 0 ended before all ranks had come" + advice(world));
  if (reply->answer == Answer::other_size)
    throw UserError(self + " of " + std::to_string(world.size) +
                    ": rank 0 has another number of processes" + advice(world));
  if (reply->answer == Answer::rank_taken)
    throw UserError("there are two processes of " + self + advice(world));
  if (reply->fd < 0) throw RunError(self + ": rank 0 sent no memory to share");
  return reply->fd;
}

}  // namespace

int meet_peers(const World& world, double timeout) {
  if (world.master.empty())
    throw UserError("the environment (" + world.variables +
                    ") doesn't say which job this process belongs to; give -n to start the "
                    "processes here");
  return world.rank == 0 ? gather(world, timeout) : join(world, timeout);
}

}  // namespace bv
