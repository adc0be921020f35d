// Streams and events, and the runtime's state.
#pragma once
#include <memory>
#include <set>
#include <vector>

#include "simt/host/error.h"
#include "simt/host/graph.h"
#include "simt/host/memory.h"
#include "simt/host/operations.h"

inline namespace simt_cuda {
struct SimtStream {
  size_t number;
  bool blocking;                    // synchronises with the null stream
  int priority = 0;                 // recorded; doesn't change the order
  simt::host::OperationPtr last{};  // queued
  std::shared_ptr<simt::host::Capture> capture{};
  std::vector<size_t> heads{};  // in a capture: the nodes that its next node depends on
};
struct SimtEvent {
  bool timing, blocking;                           // blocking: the host sleeps in its waits
  simt::host::OperationPtr record{};               // the last record, or null
  std::shared_ptr<simt::host::Capture> capture{};  // set if the last record was captured
  std::vector<size_t> heads{};
};
}  // namespace simt_cuda

namespace simt::host {

constexpr int greatest_priority = -5;  // of a stream; the least is 0

struct Runtime {
  std::mutex mutex;
  Operations operations;
  SimtStream null_stream{.number = 0, .blocking = true};
  std::set<SimtStream*> streams;
  std::set<SimtEvent*> events;
  std::set<SimtGraph*> graphs;
  std::set<SimtGraphExec*> executables;
  std::vector<std::shared_ptr<Capture>> captures;  // in progress
  std::vector<OperationPtr> left_behind;           // last operations of destroyed blocking streams
  size_t stream_numbers = 0, synchronizations = 0, launches = 0, graph_launches = 0;
  size_t spinning_waits = 0;
  bool has_modules = false;  // the driver's modules, taken at the first launch
};
Runtime& runtime();

// Runs the body of a runtime call: body(lock), which may throw Failure.
template <class Body>
cudaError_t call(const char* name, Body body) {
  is_host_thread = true;
  if (host_function)
    return report(cudaErrorNotPermitted, std::string(name) + " in a host function");
  Lock lock(runtime().mutex);
  try {
    if (sticky() == cudaSuccess) body(lock);
  } catch (const Failure& failure) {
    return report(failure.code, failure.why);
  } catch (const std::bad_alloc&) {
    return report(cudaErrorMemoryAllocation, "");
  }
  return report(sticky(), "");  // also for operations that ran during the call
}

SimtStream& resolve(cudaStream_t);
SimtEvent& resolve(cudaEvent_t);
// The operations on which an operation depends if it is queued on the stream now.
std::vector<OperationPtr> dependencies(const SimtStream&);
void submit(Lock&, const char* call, SimtStream&, WorkPtr);
// Queues a kernel, or work that is launched like one. Unless the launch is captured, *number
// becomes its number for races.h.
cudaError_t launch_work(WorkPtr, cudaStream_t, size_t* number = nullptr);
// The host waits until these operations are done; some may be null.
void synchronize(Lock&, const std::vector<OperationPtr>&);

}  // namespace simt::host
