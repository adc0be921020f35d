#include "comm/net/mesh.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/wait.h"
#include "comm/local/rank_barrier.h"

namespace bv {

// Unfinished transfers to or from one peer, in order.
struct Mesh::Queue {
  int peer;
  bool send;
  std::vector<std::span<std::byte>> parts = {};
  size_t next = 0;
  bool done() const { return next == parts.size(); }
};

Mesh::Mesh(int rank, std::vector<Socket> sockets, RunWatch& run, double timeout)
    : rank_(rank),
      sockets_(std::move(sockets)),
      run_(run),
      timeout_(timeout),
      sent_(sockets_.size()) {}

Mesh::~Mesh() { order_.synchronize(); }

void Mesh::exchange(std::span<const Transfer> transfers) {
  std::map<std::pair<int, bool>, Queue> by_peer;
  for (const Transfer& t : transfers) {
    if (t.peer < 0 || t.peer >= size())
      throw std::invalid_argument("exchange: there is no rank " + std::to_string(t.peer));
    auto& queue = by_peer.try_emplace({t.peer, t.send}, Queue{t.peer, t.send}).first->second;
    if (t.bytes > 0) queue.parts.emplace_back(static_cast<std::byte*>(t.data), t.bytes);
  }
  const Queue own_sends = by_peer[{rank_, true}], own_receives = by_peer[{rank_, false}];
  by_peer.erase({rank_, true}), by_peer.erase({rank_, false});
  for (size_t i = 0; i < own_sends.parts.size(); ++i)
    std::memcpy(own_receives.parts.at(i).data(), own_sends.parts[i].data(),
                own_sends.parts[i].size());
  std::vector<Queue> queues;
  for (auto& [key, queue] : by_peer) queues.push_back(std::move(queue));

  PeerTimeout patience(timeout_, &run_);
  while (true) {
    bool moved = false;
    for (Queue& queue : queues) moved |= progress(queue);
    std::erase_if(queues, [](const Queue& queue) { return queue.done(); });
    if (queues.empty()) return;
    if (moved) {
      patience.start_over();
      continue;
    }
    wait(queues);
    const std::string why = run_.look(patience, queues[0].peer);
    if (!why.empty()) run_.end(why, -1);
  }
}

void Mesh::wait(std::span<Queue> queues) {
  std::vector<pollfd> items;
  for (const Queue& queue : queues)
    items.push_back({sockets_[size_t(queue.peer)].fd(), short(queue.send ? POLLOUT : POLLIN), 0});
  wait_for_files(items, watch_tick_ms);
}

bool Mesh::progress(Queue& queue) {
  const int fd = sockets_[size_t(queue.peer)].fd();
  bool moved = false;
  while (!queue.done()) {
    std::span<std::byte>& part = queue.parts[queue.next];
    const ssize_t n = queue.send ? ::send(fd, part.data(), part.size(), MSG_NOSIGNAL)
                                 : ::recv(fd, part.data(), part.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return moved;
    if (n <= 0) end_without(queue.peer);
    if (queue.send) sent_[size_t(queue.peer)] += size_t(n);
    part = part.subspan(size_t(n));
    queue.next += part.empty();
    moved = true;
  }
  return moved;
}

// Waits a moment for the hosts' communicator to report why the peer is gone.
void Mesh::end_without(int peer) {
  constexpr int moment_ms = 1000, look_ms = 20;
  for (int waited = 0; waited < moment_ms; waited += look_ms) {
    PeerTimeout fresh(timeout_, &run_);
    if (const std::string why = run_.look(fresh, peer); !why.empty()) run_.end(why, -1);
    pause_ms(look_ms);
  }
  run_.end(run_.name(peer) + " has died, or its machine can't be reached", peer);
}

}  // namespace bv
