// All-reduce, rung 1: all to one, a parameter server.
// Eight ranks have 256 KiB of gradients each, and all must end up with the sum. The obvious way:
// rank 0 collects, adds and sends the sum back. Two steps, few messages; but while each other rank
// sends the data once, rank 0 sends it seven times, one after another, and all wait for its link.
// More ranks make it worse: a job of 64 would spend its time at rank 0.
//   make learn TOPIC=allreduce
#include "learn/allreduce/ranks.h"

using learn::count, learn::Rank, learn::ranks;

// data [count]
static void all_reduce(Rank& me, float* data) {
  if (me.rank != 0) {
    me.send(0, data, count);
    me.receive(0, data, count);
    return;
  }
  std::vector<float> part(count);
  for (int peer = 1; peer < ranks; ++peer) {
    me.receive(peer, part.data(), count);
    for (size_t i = 0; i < count; ++i) data[i] += part[i];
  }
  for (int peer = 1; peer < ranks; ++peer) me.send(peer, data, count);
}

int main() {
  return learn::run_ranks(
      {.name = "allreduce v1: all to one", .earns = "-", .bytes = 0, .flops = 0}, all_reduce);
}
