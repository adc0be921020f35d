// All-reduce, rung 2: a ring.
// The data is cut into one chunk per rank, and each rank talks to its two neighbours only. First
// the partial sums travel: in each step a rank sends the chunk that it added to last and adds the
// chunk from its left to its own; after ranks - 1 steps it holds the whole sum of one chunk (a
// reduce-scatter). Then the sums travel around the ring once (an all-gather). A rank sends
//   2 (ranks - 1) / ranks of its data,
// less than twice its data for any number of ranks, and no link is busier than another. The price:
// 14 steps instead of 2, each of which waits for a neighbour.
//   make learn TOPIC=allreduce
#include "learn/allreduce/ranks.h"

using learn::count, learn::Rank, learn::ranks;
constexpr size_t chunk = count / ranks;

// Sends `out` to the right and receives `in` from the left, [chunk] each. If all ranks sent first
// and no socket could hold a chunk, all would wait forever, so the odd ranks receive first.
static void step(Rank& me, const float* out, float* in) {
  const int right = (me.rank + 1) % ranks, left = (me.rank + ranks - 1) % ranks;
  if (me.rank % 2 == 0) me.send(right, out, chunk);
  me.receive(left, in, chunk);
  if (me.rank % 2 == 1) me.send(right, out, chunk);
}

// data [ranks, chunk]
static void all_reduce(Rank& me, float* data) {
  const auto at = [&](int c) { return data + size_t((c + 2 * ranks) % ranks) * chunk; };
  std::vector<float> part(chunk);
  for (int i = 0; i < ranks - 1; ++i) {  // reduce-scatter: completes chunk rank + 1
    step(me, at(me.rank - i), part.data());
    float* const sum = at(me.rank - i - 1);
    for (size_t k = 0; k < chunk; ++k) sum[k] += part[k];
  }
  for (int i = 0; i < ranks - 1; ++i)  // all-gather
    step(me, at(me.rank + 1 - i), at(me.rank - i));
}

int main() {
  return learn::run_ranks(
      {.name = "allreduce v2: ring", .earns = "busiest_rank", .bytes = 0, .flops = 0}, all_reduce);
}
