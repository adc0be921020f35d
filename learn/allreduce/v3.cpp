// All-reduce, rung 3: the shipped one, on two levels.
// The ring treats all links alike, but those between machines are the slow ones, and nearly twice
// the data crosses them, sent by one rank of each group. On two levels, each group first reduces
// within itself, each of its 4 ranks a quarter of the data; then 4 rings between the groups run at
// once, one per quarter; then the group gathers its quarters. However many ranks a group has, it
// sends 2 (groups - 1) / groups of the data instead of 2 (ranks - 1) / ranks.
//   make learn TOPIC=allreduce
#include <fcntl.h>

#include "comm/net/ring_communicator.h"
#include "comm/single_communicator.h"
#include "comm/two_level_communicator.h"
#include "learn/allreduce/ranks.h"

using learn::count, learn::group, learn::Rank, learn::ranks;

namespace {

// In a training run this watches the peers during a wait; here it does nothing until an error.
struct Watch final : bv::RunWatch {
  std::string name(int rank) const override { return "rank " + std::to_string(rank); }
  std::string look(bv::PeerTimeout&, int) override { return ""; }
  [[noreturn]] void end(const std::string& why, int) override {
    std::fprintf(stderr, "allreduce: %s\n", why.c_str());
    _exit(1);
  }
};

// data [count]
void all_reduce(Rank& me, float* data) {
  Watch watch;
  std::vector<bv::Socket> sockets;
  for (const int socket : me.sockets) {
    if (socket >= 0) fcntl(socket, F_SETFL, O_NONBLOCK);
    sockets.emplace_back(socket);
  }
  const auto mesh = std::make_shared<bv::Mesh>(me.rank, std::move(sockets), watch, 60.0);
  auto whole = bv::make_ring_communicator(mesh, bv::make_single_communicator());
  std::vector<int> mine, alike;  // this group's ranks; ranks with this place in each group
  for (int r = 0; r < ranks; ++r) {
    if (r / group == me.rank / group) mine.push_back(r);
    if (r % group == me.rank % group) alike.push_back(r);
  }
  auto local = whole->group(mine), across = whole->group(alike);
  bv::make_two_level_communicator(std::move(whole), std::move(local), std::move(across))
      ->all_reduce(data, count, nullptr);
  for (int peer = 0; peer < ranks; ++peer) me.sent[peer] = mesh->bytes_sent(peer);
}

}  // namespace

int main() {
  return learn::run_ranks({.name = "allreduce v3: shipped, two levels",
                           .earns = "between_groups",
                           .bytes = 0,
                           .flops = 0},
                          all_reduce);
}
