// Free ports of this machine, for tests.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>

#include <string>

#include "comm/net/socket.h"

namespace bv::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A port such that the next one, which a run will use, is free.
inline int free_port() {
  const Socket probe(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (bind(probe.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) return 0;
  getsockname(probe.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port) - 1;
}

inline bool say_to_port(int port, const std::string& text) {
  const Socket made(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = loopback(port);
  return connect(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         send(made.fd(), text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
}

}  // namespace bv::test
