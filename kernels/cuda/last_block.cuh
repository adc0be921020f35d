// Last-block reduction: the block that finishes last merges all partial results, instead of a
// second launch. The last block differs from run to run; the order of the merge doesn't, so equal
// runs give equal bits. If there are so many columns and parts that one block would need longer
// than a launch takes, a second launch is used instead (finish_column_sums).
//
// Each part of the rows stores two numbers per column, partial [parts, 2, C]. If there are many
// parts, the last block of each group of neighbouring parts merges the group into the place of the
// group's first part, and the last block of all groups merges the groups.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {

// True in all threads of the last of `blocks` blocks to call it with this counter, which is 0
// before and after. That block may read everything that the others wrote before their calls.
__device__ inline bool is_last(unsigned* arrived, int blocks) {
  __threadfence();
  __syncthreads();
  const bool first_thread = threadIdx.x == 0;
  const bool last =
      __syncthreads_or(first_thread && atomicAdd(arrived, 1u) == static_cast<unsigned>(blocks - 1));
  if (last && first_thread) *arrived = 0;
  __threadfence();
  return last;
}

struct RowParts {
  float* partial;     // [count, 2, C], overwritten
  unsigned* arrived;  // [stripes, 1 + groups()]
  int count, C;
  int group;  // parts that are merged at a time; a power of two

  __host__ __device__ int groups() const { return ceil_div(count, group); }
};

// `columns`: the number of stripes into which the blocks divide the C columns.
inline RowParts row_parts(const DeviceProps& props, void* partial, int count, int C, int columns) {
  RowParts parts{.partial = static_cast<float*>(partial),
                 .arrived = props.arrived,
                 .count = count,
                 .C = C,
                 .group = 128};
  const auto counters = [&] { return int64_t{columns} * (1 + parts.groups()); };
  // There are at most as many groups as parts in a group.
  while (parts.groups() > parts.group) parts.group *= 2;
  while (parts.groups() > 1 && counters() > DeviceProps::counters) parts.group *= 2;
  require(counters() <= DeviceProps::counters, "batch norm", "C is %d, too many to sum", C);
  return parts;
}

// Merges the parts' values of `columns` columns, using all threads of a block (at most `threads`).
// A thread reads `width` neighbouring columns (1 or 4) of some parts. The policy, Kind, has
//   Value, all zeros while nothing has been merged, and merge(Value&, const Value&)
//   value(part, parts, x, y)   the value of `parts` parts from `part` on, stored as x and y
//   save(part, value)          stores a part's two numbers, at part[0] and part[C]
//   finish(channel, value)     stores the result
template <class Kind, int threads, int columns, int width>
struct LastBlock {
  using Value = typename Kind::Value;
  static constexpr int lanes = columns / width;
  struct Shared {
    Value values[threads / lanes][columns];
  };

  // Called by all threads of each block once they have written `part`, for the stripe `at`.
  // channel(c): the channel of the stripe's column c, or -1.
  template <class Channel>
  __device__ static void run(const Kind& kind, const RowParts& p, int part, int at, Channel channel,
                             Shared& s) {
    const int groups = p.groups(), own = part / p.group, first = own * p.group;
    unsigned* const arrived = p.arrived + int64_t{at} * (1 + groups);
    if (groups > 1) {
      const int count = min(p.group, p.count - first);
      if (!is_last(arrived + 1 + own, count)) return;
      merge_parts(kind, p, first, first + count, 1, channel, s, [&](int c, const Value& value) {
        kind.save(p.partial + int64_t{first} * 2 * p.C + c, value);
      });
    }
    if (!is_last(arrived, groups > 1 ? groups : p.count)) return;
    merge_parts(kind, p, 0, p.count, groups > 1 ? p.group : 1, channel, s,
                [&](int c, const Value& value) { kind.finish(c, value); });
  }

 private:
  // Merges every `stride`-th part, and calls use(channel, value) for each column.
  template <class Channel, class Use>
  __device__ static void merge_parts(const Kind& kind, const RowParts& p, int first, int end,
                                     int stride, Channel channel, Shared& s, Use use) {
    constexpr int ahead = 4;
    const int thread = static_cast<int>(threadIdx.x), lane = thread / lanes;
    const int at_once = static_cast<int>(blockDim.x) / lanes, step = at_once * stride;
    const int column = thread % lanes * width, of_thread = channel(column);
    Value sum[width] = {};
    if (of_thread >= 0 && lane < at_once)
      for (int part = first + lane * stride; part < end; part += ahead * step) {
        Elements<float, width> x[ahead], y[ahead];
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const int from = part + k * step < end ? part + k * step : part;
          const float* const at = p.partial + int64_t{from} * 2 * p.C + of_thread;
          x[k] = load<width>(at), y[k] = load<width>(at + p.C);
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (part + k * step < end)
#pragma unroll
            for (int i = 0; i < width; ++i)
              merge(sum[i], kind.value(part + k * step, stride, x[k].at[i], y[k].at[i]));
      }
    if (lane < at_once)
#pragma unroll
      for (int i = 0; i < width; ++i) s.values[lane][column + i] = sum[i];
    __syncthreads();
    for (int c = thread; c < columns; c += static_cast<int>(blockDim.x)) {
      if (channel(c) < 0) continue;
      Value all{};
      for (int k = 0; k < at_once; ++k) merge(all, s.values[k][c]);
      use(channel(c), all);
    }
  }
};

}  // namespace bv::BAREVISION_GPU
