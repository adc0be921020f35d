#include "comm/connect/meeting_point.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/wait.h"

namespace bv {
namespace {

class UnixMeetingPoint final : public MeetingPoint {
 public:
  explicit UnixMeetingPoint(const World& world) : name_(world.master) {
    const std::string name = "barevision/" + std::to_string(getuid()) + "/" + world.master;
    address_.sun_family = AF_UNIX;
    // A leading zero byte makes it abstract. A name that is too long loses its front, where names
    // differ least.
    const size_t room = sizeof address_.sun_path - 1;
    const std::string end = name.size() <= room ? name : name.substr(name.size() - room);
    std::memcpy(address_.sun_path + 1, end.data(), end.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + end.size());
  }
  std::string name() const override { return printable(name_); }
  Socket bound() const override { return with(bind); }
  Socket connected() const override { return with(connect); }
  bool admits(int fd) const override {
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
  }

 private:
  Socket with(int (*call)(int, const sockaddr*, socklen_t)) const {
    Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (made && call(made.fd(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0)
      made = Socket();
    return made;
  }

  std::string name_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

class TcpMeetingPoint final : public MeetingPoint {
 public:
  TcpMeetingPoint(std::string host, int port, std::string said_by)
      : host_(std::move(host)), port_(std::to_string(port)), said_by_(std::move(said_by)) {}
  std::string name() const override { return printable(host_) + ":" + port_; }
  Socket bound() const override {
    return first_of(nullptr, [](int fd, const sockaddr* address, socklen_t length) {
      const int on = 1, off = 0;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (address->sa_family == AF_INET6)  // IPv4 as well
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      return bind(fd, address, length);
    });
  }
  Socket connected() const override {
    return first_of(host_.c_str(), [](int fd, const sockaddr* address, socklen_t length) {
      if (connect(fd, address, length) == 0) return 0;
      constexpr int patience_ms = 2000;  // per address: a dropped SYN is sent again after 1 s
      pollfd item{fd, POLLOUT, 0};
      if (errno != EINPROGRESS || wait_for_files({&item, 1}, patience_ms) < 1) return -1;
      socklen_t size = sizeof errno;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &size);
      return errno ? -1 : 0;
    });
  }
  bool admits(int) const override { return true; }  // decided by the handshake

 private:
  // A socket for the host's first address on which `call` succeeds.
  template <class Call>
  Socket first_of(const char* host, Call call) const {
    addrinfo hints{}, *list = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = host ? 0 : AI_PASSIVE;
    if (const int error = getaddrinfo(host, port_.c_str(), &hints, &list))
      throw UserError(said_by_ + printable(host_) + ": " + gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    for (const int family : {AF_INET6, AF_INET})
      for (const addrinfo* at = list; at; at = at->ai_next) {
        if (at->ai_family != family) continue;
        Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (made && call(made.fd(), at->ai_addr, at->ai_addrlen) == 0) return made;
      }
    return Socket();
  }

  std::string host_, port_;
  std::string said_by_;  // "--master-addr "
};

}  // namespace

std::unique_ptr<MeetingPoint> meeting_point_here(const World& world) {
  return std::make_unique<UnixMeetingPoint>(world);
}
std::unique_ptr<MeetingPoint> meeting_point_of_network(const World& world) {
  return std::make_unique<TcpMeetingPoint>(world.host, world.meeting_port(),
                                           world.launched ? "--master-addr " : "MASTER_ADDR=");
}
std::unique_ptr<MeetingPoint> meeting_point_at(const std::string& address, int port) {
  return std::make_unique<TcpMeetingPoint>(address, port, "address ");
}

}  // namespace bv
