// Ranks as processes of this machine: each has made-up gradients and a socket to every other rank,
// and counts the bytes that it sends to each. The ranks form two groups of 4, as in two machines.
#pragma once
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "learn/rung.h"

namespace learn {

constexpr int ranks = 8, group = 4;
constexpr size_t count = 1 << 16, bytes = count * sizeof(float);  // of each rank's gradients

// Lies in memory that the processes share; each writes its own row.
struct Results {
  float sums[ranks][count];
  uint64_t sent[ranks][ranks];  // bytes from rank to rank
};

struct Rank {
  int rank;
  int sockets[ranks];  // by peer; -1 for itself
  uint64_t* sent;      // [ranks]

  void send(int peer, const float* data, size_t n) {
    const char* p = reinterpret_cast<const char*>(data);
    for (size_t left = n * sizeof(float); left > 0;) {
      const ssize_t now = ::send(sockets[peer], p, left, MSG_NOSIGNAL);
      if (now <= 0) fail("send");
      p += now, left -= size_t(now), sent[peer] += uint64_t(now);
    }
  }
  void receive(int peer, float* data, size_t n) const {
    if (recv(sockets[peer], data, n * sizeof(float), MSG_WAITALL) != ssize_t(n * sizeof(float)))
      fail("receive");
  }
  void fail(const char* what) const {
    std::fprintf(stderr, "allreduce: rank %d: %s: its peer has exited\n", rank, what);
    _exit(1);
  }
};

// Keeps rank's own row of `sockets` and closes the others, so that the rank notices a lost peer.
inline Rank take_row(std::vector<std::vector<int>>& sockets, int rank, Results& results) {
  Rank mine{rank, {}, results.sent[rank]};
  for (int r = 0; r < ranks; ++r)
    for (int peer = 0; peer < ranks; ++peer)
      if (r == rank)
        mine.sockets[peer] = sockets[size_t(r)][size_t(peer)];
      else if (sockets[size_t(r)][size_t(peer)] >= 0)
        close(sockets[size_t(r)][size_t(peer)]);
  return mine;
}

// all_reduce(Rank&, float* data): data [count] becomes the sum over all ranks. Runs it on each
// rank, compares all results, prints the rung's line; returns main()'s exit code.
template <class AllReduce>
int run_ranks(Rung rung, AllReduce all_reduce) {
  void* const memory =
      mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::perror("allreduce: mmap"), 1;
  Results& results = *static_cast<Results*>(memory);
  std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < a; ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return std::perror("allreduce: socketpair"), 1;
      sockets[size_t(a)][size_t(b)] = ends[0], sockets[size_t(b)][size_t(a)] = ends[1];
    }
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      Rank mine = take_row(sockets, r, results);
      const std::vector<float> gradients = numbers(count, uint32_t(r));
      std::copy(gradients.begin(), gradients.end(), results.sums[r]);
      all_reduce(mine, results.sums[r]);
      _exit(0);
    }
    if (child > 0) children.push_back(child);
  }
  for (auto& row : sockets)
    for (const int socket : row) close(socket);
  bool all_well = children.size() == ranks;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    all_well &= status == 0;
  }
  if (!all_well) return std::fprintf(stderr, "%s: a rank has failed\n", rung.name), 1;

  uint64_t busiest = 0, out_of_group[ranks / group] = {};
  for (int r = 0; r < ranks; ++r) {
    uint64_t sent = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      sent += results.sent[r][peer];
      if (peer / group != r / group) out_of_group[r / group] += results.sent[r][peer];
    }
    busiest = std::max(busiest, sent);
  }
  const std::string counts =
      "busiest_rank " + std::to_string(busiest) + ", between_groups " +
      std::to_string(*std::max_element(out_of_group, out_of_group + ranks / group));
  rung.bytes = bytes, rung.flops = double(ranks - 1) * count, rung.counts = counts.c_str();

  std::vector<double> expected(count, 0);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> gradients = numbers(count, uint32_t(r));
    for (size_t i = 0; i < count; ++i) expected[i] += double(gradients[i]);
  }
  // Multiples of 1/128: every order of adding gives the same bits.
  const std::vector<float> sums(results.sums[0], results.sums[0] + ranks * count);
  return compare(rung, sums, 0, [&](size_t i) { return expected[i % count]; });
}

}  // namespace learn
