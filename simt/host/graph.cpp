#include "simt/host/graph.h"

#include <algorithm>
#include <utility>

#include "simt/host/stream.h"

namespace simt::host {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::string named(const char* call) {
  return std::string(call) + " while a stream is being captured";
}

// Whether everything captured has been joined to the origin stream.
bool joined(const Capture& c) {
  std::vector<bool> reached(c.nodes->size());
  std::vector<size_t> stack = c.origin->heads;
  while (!stack.empty()) {
    const size_t node = stack.back();
    stack.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    const auto& before = (*c.nodes)[node].before;
    stack.insert(stack.end(), before.begin(), before.end());
  }
  return std::all_of(c.streams.begin(), c.streams.end(), [&](const SimtStream* s) {
    return std::all_of(s->heads.begin(), s->heads.end(), [&](size_t n) { return reached[n]; });
  });
}

// Ends the capture and moves its nodes out of it: events recorded in it may keep it alive.
std::shared_ptr<Nodes> end(const std::shared_ptr<Capture>& c) {
  c->ended = true;
  for (SimtStream* s : c->streams) {
    s->capture = nullptr;
    s->heads.clear();
  }
  c->streams.clear();
  std::erase(runtime().captures, c);
  return std::exchange(c->nodes, nullptr);
}

template <class T>
T& resolve(const std::set<T*>& all, T* handle) {
  if (!all.contains(handle))
    throw Failure{cudaErrorInvalidValue, "no such graph: never made, or destroyed"};
  return *handle;
}

}  // namespace

void invalidate(Capture& c, const std::string& by) {
  if (c.invalidated_by.empty()) c.invalidated_by = by;
}

void add_node(SimtStream& s, WorkPtr work) {
  Capture& c = *s.capture;
  if (!c.invalidated_by.empty()) throw Failure{cudaErrorStreamCaptureInvalidated, c.invalidated_by};
  c.nodes->push_back({std::move(work), std::move(s.heads), s.number, s.priority});
  s.heads = {c.nodes->size() - 1};
}

void forbid_in_capture(const char* call) {
  bool forbidden = false;
  for (const auto& c : runtime().captures) {
    const bool ours = c->thread == std::this_thread::get_id();
    if ((ours && c->mode != cudaStreamCaptureModeRelaxed &&
         thread_mode != cudaStreamCaptureModeRelaxed) ||
        (c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal)) {
      invalidate(*c, call);
      forbidden = true;
    }
  }
  if (forbidden) throw Failure{cudaErrorStreamCaptureUnsupported, named(call)};
}

void forbid_null_stream_in_capture(const char* call) {
  bool forbidden = false;
  for (const auto& c : runtime().captures)
    for (const SimtStream* s : c->streams)
      if (s->blocking) {
        invalidate(*c, std::string(call) + " on the null stream");
        forbidden = true;
      }
  if (forbidden)
    throw Failure{cudaErrorStreamCaptureImplicit,
                  std::string(call) +
                      " on the null stream, which waits for a stream that is being captured (one "
                      "with cudaStreamNonBlocking it does not wait for)"};
}

void leave_capture(SimtStream& s) {
  if (!s.capture) return;
  const auto c = s.capture;
  invalidate(*c, "cudaStreamDestroy");
  if (c->origin == &s)
    end(c);
  else
    std::erase(c->streams, &s);
}

}  // namespace simt::host

using namespace simt::host;

inline namespace simt_cuda {

// ---- Capture ------------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&](Lock&) {
    SimtStream& s = resolve(stream);
    if (&s == &runtime().null_stream)
      throw Failure{cudaErrorStreamCaptureUnsupported, "the null stream cannot be captured"};
    if (s.capture) throw Failure{cudaErrorIllegalState, "the stream is being captured already"};
    s.capture = std::make_shared<Capture>(
        Capture{.mode = mode, .thread = std::this_thread::get_id(), .origin = &s, .streams = {&s}});
    s.heads.clear();
    runtime().captures.push_back(s.capture);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&](Lock&) {
    SimtStream& s = resolve(stream);
    if (!graph) throw Failure{cudaErrorInvalidValue, "the graph pointer is null"};
    *graph = nullptr;
    if (!s.capture) throw Failure{cudaErrorIllegalState, "the stream is not being captured"};
    const auto c = s.capture;
    if (c->origin != &s) {
      invalidate(*c, "cudaStreamEndCapture on another stream");
      throw Failure{cudaErrorStreamCaptureUnmatched, "the capture began on another stream"};
    }
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
      throw Failure{cudaErrorStreamCaptureWrongThread, "the capture began on another thread"};
    const bool whole = joined(*c);
    auto nodes = end(c);
    if (!c->invalidated_by.empty())
      throw Failure{cudaErrorStreamCaptureInvalidated, c->invalidated_by};
    if (!whole)
      throw Failure{cudaErrorStreamCaptureUnjoined,
                    "a stream was forked from the captured one, and its later work was not joined"};
    *graph = *runtime().graphs.insert(new SimtGraph{std::move(nodes)}).first;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&](Lock&) {
    const SimtStream& s = resolve(stream);
    if (!status) throw Failure{cudaErrorInvalidValue, ""};
    *status = !s.capture                          ? cudaStreamCaptureStatusNone
              : s.capture->invalidated_by.empty() ? cudaStreamCaptureStatusActive
                                                  : cudaStreamCaptureStatusInvalidated;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", [&](Lock&) {
    if (!mode) throw Failure{cudaErrorInvalidValue, ""};
    std::swap(*mode, thread_mode);
  });
}

// ---- Graphs -------------------------------------------------------------------------------------
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call("cudaGraphGetNodes", [&](Lock&) {
    Nodes& all = *resolve(runtime().graphs, graph).nodes;
    if (!count) throw Failure{cudaErrorInvalidValue, ""};
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = i < all.size() ? &all[i] : nullptr;
    *count = nodes ? std::min(*count, all.size()) : all.size();
  });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call("cudaGraphNodeGetType", [&](Lock&) {
    if (!node || !type) throw Failure{cudaErrorInvalidValue, ""};
    switch (node->work->kind) {
      case Kind::kernel:
        *type = cudaGraphNodeTypeKernel;
        break;
      case Kind::copy:
        *type = cudaGraphNodeTypeMemcpy;
        break;
      case Kind::set:
        *type = cudaGraphNodeTypeMemset;
        break;
      default:
        *type = cudaGraphNodeTypeHost;  // marks never become nodes
    }
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&](Lock&) {
    delete &resolve(runtime().graphs, graph);
    runtime().graphs.erase(graph);
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return call("cudaGraphInstantiate", [&](Lock&) {
    const SimtGraph& g = resolve(runtime().graphs, graph);
    if (!executable || (flags & ~cudaGraphInstantiateFlagUseNodePriority))
      throw Failure{cudaErrorInvalidValue, "the only supported flag is UseNodePriority"};
    *executable =
        *runtime().executables.insert(new SimtGraphExec{g.nodes, flags != 0, nullptr}).first;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphUpload", [&](Lock&) {
    resolve(runtime().executables, executable);
    resolve(stream);
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&](Lock& lock) {
    Runtime& r = runtime();
    SimtGraphExec& x = resolve(r.executables, executable);
    SimtStream& s = resolve(stream);
    if (s.capture) {
      invalidate(*s.capture, "cudaGraphLaunch");
      throw Failure{cudaErrorStreamCaptureUnsupported, "graphs inside graphs are not supported"};
    }
    if (&s == &r.null_stream) forbid_null_stream_in_capture("cudaGraphLaunch");
    ++r.graph_launches;
    const auto mark = std::make_shared<const Work>(Work{Kind::mark, "cudaGraphLaunch", nullptr});
    std::vector<OperationPtr> before = dependencies(s), last, all;
    before.push_back(x.last);
    const OperationPtr begin = r.operations.add(mark, s.number, std::move(before));
    std::vector<bool> has_follower(x.nodes->size());
    for (const SimtNode& node : *x.nodes) {
      std::vector<OperationPtr> follows;
      for (const size_t i : node.before) {
        follows.push_back(all[i]);
        has_follower[i] = true;
      }
      if (follows.empty()) follows.push_back(begin);
      all.push_back(r.operations.add(node.work, node.stream, std::move(follows),
                                     x.uses_node_priority ? node.priority : s.priority));
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (!has_follower[i]) last.push_back(all[i]);
    if (last.empty()) last.push_back(begin);
    x.last = s.last = r.operations.add(mark, s.number, std::move(last));
    r.operations.added(lock);
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call("cudaGraphExecDestroy", [&](Lock&) {
    delete &resolve(runtime().executables, executable);
    runtime().executables.erase(executable);
  });
}

}  // namespace simt_cuda
