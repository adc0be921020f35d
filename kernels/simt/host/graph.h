// Graphs, and their capture from streams.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/simt/host/operations.h"
#include "kernels/simt/include/cuda_runtime.h"

inline namespace simt_cuda {
struct SimtNode {
  simt::host::WorkPtr work;
  std::vector<size_t> before;  // their places in the graph
  size_t stream;               // number of that it was captured from
};
}  // namespace simt_cuda

namespace simt::host {

using Nodes = std::deque<SimtNode>;  // in the order of their capture, so each behind its `before`

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  SimtStream* origin;
  std::vector<SimtStream*> streams;  // that have joined, the origin first
  std::shared_ptr<Nodes> nodes = std::make_shared<Nodes>();
  std::string invalidated_by{};  // empty: nothing has
  bool ended = false;
};

// Each of these with the runtime's lock held.
void add_node(SimtStream&, WorkPtr);  // to the graph that is captured from the stream
void invalidate(Capture&, const std::string& by);
// Refuses a call that a capture rules out, whatever the stream: synchronising, allocating.
void forbid_in_capture(const char* call);
// Refuses what makes the null stream wait for a stream that is being captured.
void forbid_null_stream_in_capture(const char* call);
void leave_capture(SimtStream&);

}  // namespace simt::host

inline namespace simt_cuda {
struct SimtGraph {
  std::shared_ptr<simt::host::Nodes> nodes;
};
struct SimtGraphExec {
  std::shared_ptr<const simt::host::Nodes> nodes;
  simt::host::OperationPtr last;  // of its launches, which follow one another
};
}  // namespace simt_cuda
