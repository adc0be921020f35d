// Graphs, and their capture from streams.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "simt/host/operations.h"
#include "simt/include/cuda_runtime.h"

inline namespace simt_cuda {
struct SimtNode {
  simt::host::WorkPtr work;
  std::vector<size_t> before;  // indices of the nodes it depends on
  size_t stream;               // number of the stream it was captured from
  int priority;                // of that stream
};
}  // namespace simt_cuda

namespace simt::host {

using Nodes = std::deque<SimtNode>;  // in order of capture, so dependencies precede their nodes

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  SimtStream* origin;
  std::vector<SimtStream*> streams;  // taking part, the origin first
  std::shared_ptr<Nodes> nodes = std::make_shared<Nodes>();
  std::string invalidated_by{};  // empty while it is valid
  bool ended = false;
};

// All of these need the runtime's lock.
void add_node(SimtStream&, WorkPtr);  // to the graph being captured from the stream
void invalidate(Capture&, const std::string& by);
// Refuses a call that a capture on any stream forbids: synchronising, allocating.
void forbid_in_capture(const char* call);
// Refuses a call that would make the null stream wait for a stream being captured.
void forbid_null_stream_in_capture(const char* call);
void leave_capture(SimtStream&);

}  // namespace simt::host

inline namespace simt_cuda {
struct SimtGraph {
  std::shared_ptr<simt::host::Nodes> nodes;
};
struct SimtGraphExec {
  std::shared_ptr<const simt::host::Nodes> nodes;
  bool uses_node_priority;        // otherwise nodes run at the priority of the launch's stream
  simt::host::OperationPtr last;  // of its launches, which run one after another
};
}  // namespace simt_cuda
