#include "simt/host/stream.h"

#include <algorithm>
#include <climits>
#include <thread>
#include <utility>

#include "simt/counters/recorder.h"
#include "simt/device/control.h"
#include "simt/races/races.h"

namespace simt::host {

Runtime& runtime() {
  static auto& all = *new Runtime;  // never destroyed
  return all;
}

SimtStream& resolve(cudaStream_t stream) {
  if (!stream) return runtime().null_stream;
  if (!runtime().streams.contains(stream))
    throw Failure{cudaErrorInvalidResourceHandle, "no such stream: never created, or destroyed"};
  return *stream;
}
SimtEvent& resolve(cudaEvent_t event) {
  if (!runtime().events.contains(event))
    throw Failure{cudaErrorInvalidResourceHandle, "no such event: never created, or destroyed"};
  return *event;
}

std::vector<OperationPtr> dependencies(const SimtStream& s) {
  Runtime& r = runtime();
  if (&s != &r.null_stream)
    return s.blocking ? std::vector{s.last, r.null_stream.last} : std::vector{s.last};
  std::vector<OperationPtr> all = r.left_behind;
  all.push_back(s.last);
  for (const SimtStream* other : r.streams)
    if (other->blocking) all.push_back(other->last);
  return all;
}

void submit(Lock& lock, const char* call, SimtStream& s, WorkPtr work) {
  if (s.capture) return add_node(s, std::move(work));
  Runtime& r = runtime();
  if (&s == &r.null_stream) forbid_null_stream_in_capture(call);
  s.last = r.operations.add(std::move(work), s.number, dependencies(s), s.priority);
  if (&s == &r.null_stream) r.left_behind.clear();  // the new operation depends on them
  r.operations.added(lock);
}

void synchronize(Lock& lock, const std::vector<OperationPtr>& all) {
  std::vector<OperationPtr> wanted;
  for (const OperationPtr& o : all)
    if (o) wanted.push_back(o);
  runtime().operations.run(lock, wanted);
}

namespace {

// A host function runs on a thread of its own, as on a thread of the driver: once it waits, queues
// proceed. Until then they don't, so that a seed gives programs without such waits the same order
// each time. After an error of the device, nobody waits for it any more.
class HostFunction final : public UnderWay {
 public:
  HostFunction(cudaHostFn_t function, void* data) {
    std::thread([state = state_, function, data]() noexcept {  // no exception crosses the driver
      here = state.get();
      host_function = name;
      function(data);
      state->change(state->has_ended);
    })
        .detach();
  }
  bool advance() override {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    s.waits =
        !s.changed.wait_for(lock, patience, [&] { return s.has_ended || s.waits; }) || s.waits;
    return s.has_ended;
  }
  void sleep(const std::vector<UnderWay*>& all) override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, all.size() == 1 ? std::chrono::milliseconds(10) : moment,
                             [this] { return state_->has_ended; });
  }
  // Called by each wait of a thread, which may be that of a host function.
  static void thread_waits() {
    if (here) here->change(here->waits);
  }
  static constexpr const char* name = "a host function";

 private:
  // How long a function may take, in which no wait is seen.
  static constexpr std::chrono::seconds patience{1};
  struct State {
    void change(bool& to) {
      const std::lock_guard lock(mutex);
      to = true;
      changed.notify_all();
    }
    std::mutex mutex;
    std::condition_variable changed;
    bool waits = false, has_ended = false;
  };
  static inline thread_local State* here = nullptr;  // of the function whose thread this is
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

WorkPtr mark(const char* name) {
  return std::make_shared<const Work>(Work{Kind::mark, name, nullptr});
}

void forbid_capturing(SimtStream& s, const char* call) {
  if (!s.capture) return;
  invalidate(*s.capture, call);
  throw Failure{cudaErrorStreamCaptureUnsupported, std::string(call) + " on a capturing stream"};
}

void forbid_captured(SimtEvent& e, const char* call) {
  if (!e.capture) return;
  invalidate(*e.capture, call);
  throw Failure{cudaErrorCapturedEvent,
                std::string(call) + ": the event was last recorded in a capture"};
}

void queue_wait(Lock& lock, SimtStream& s, SimtEvent& e) {
  const char* call = "cudaStreamWaitEvent";
  if (e.capture) {
    if (e.capture->ended)
      throw Failure{cudaErrorCapturedEvent,
                    "the event was last recorded in a capture that has ended"};
    if (!s.capture) {
      if (&s == &runtime().null_stream)
        throw Failure{cudaErrorStreamCaptureImplicit, "the null stream cannot join a capture"};
      s.capture = e.capture;
      s.heads.clear();
      s.capture->streams.push_back(&s);
    } else if (s.capture != e.capture) {
      invalidate(*s.capture, call);
      invalidate(*e.capture, call);
      throw Failure{cudaErrorStreamCaptureMerge, "the event belongs to another capture"};
    }
    for (size_t node : e.heads)
      if (std::find(s.heads.begin(), s.heads.end(), node) == s.heads.end()) s.heads.push_back(node);
  } else if (s.capture) {
    invalidate(*s.capture, call);
    throw Failure{cudaErrorStreamCaptureIsolation,
                  "a stream that is being captured would wait for an event from outside"};
  } else if (e.record && !e.record->done) {
    std::vector<OperationPtr> before = dependencies(s);
    before.push_back(e.record);
    if (&s == &runtime().null_stream) forbid_null_stream_in_capture(call);
    s.last = runtime().operations.add(mark(call), s.number, std::move(before));
    runtime().operations.added(lock);
  }
}

cudaError_t create(const char* name, cudaStream_t* stream, unsigned flags, int priority = 0) {
  return call(name, [&](Lock&) {
    if (!stream || flags > cudaStreamNonBlocking) throw Failure{cudaErrorInvalidValue, ""};
    Runtime& r = runtime();
    *stream = new SimtStream{.number = ++r.stream_numbers,
                             .blocking = flags == cudaStreamDefault,
                             .priority = std::clamp(priority, greatest_priority, 0)};
    r.streams.insert(*stream);
  });
}

}  // namespace
}  // namespace simt::host

using namespace simt::host;

inline namespace simt_cuda {

// ---- Streams ------------------------------------------------------------------------------------
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create("cudaStreamCreate", stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create("cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create("cudaStreamCreateWithPriority", stream, flags, priority);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&](Lock&) {
    Runtime& r = runtime();
    SimtStream& s = resolve(stream);
    if (&s == &r.null_stream)
      throw Failure{cudaErrorInvalidResourceHandle, "the null stream cannot be destroyed"};
    leave_capture(s);
    std::erase_if(r.left_behind, [](const OperationPtr& o) { return o->done; });
    if (s.blocking && s.last && !s.last->done) r.left_behind.push_back(s.last);
    r.streams.erase(stream);
    delete stream;  // its queued work still runs
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&](Lock& lock) {
    SimtStream& s = resolve(stream);
    forbid_capturing(s, "cudaStreamSynchronize");
    forbid_in_capture("cudaStreamSynchronize");
    ++runtime().synchronizations;
    synchronize(lock, {s.last});
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&](Lock& lock) {
    SimtStream& s = resolve(stream);
    forbid_capturing(s, "cudaStreamQuery");
    forbid_in_capture("cudaStreamQuery");
    if (s.last && !runtime().operations.poll(lock, {s.last})) throw Failure{cudaErrorNotReady, ""};
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&](Lock& lock) {
    if (!function) throw Failure{cudaErrorInvalidValue, "the function is null"};
    const auto start = [=] { return std::make_unique<HostFunction>(function, data); };
    submit(lock, "cudaLaunchHostFunc", resolve(stream),
           std::make_shared<const Work>(
               Work{.kind = Kind::host, .name = HostFunction::name, .start = start}));
  });
}

// ---- Events -------------------------------------------------------------------------------------
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](Lock&) {
    if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming))
      throw Failure{cudaErrorInvalidValue, ""};
    *event = *runtime()
                  .events
                  .insert(new SimtEvent{.timing = !(flags & cudaEventDisableTiming),
                                        .blocking = (flags & cudaEventBlockingSync) != 0})
                  .first;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&](Lock&) {
    resolve(event);
    runtime().events.erase(event);
    delete event;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&](Lock& lock) {
    SimtEvent& e = resolve(event);
    SimtStream& s = resolve(stream);
    if (s.capture) {
      e.capture = s.capture;
      e.heads = s.heads;
      e.record = nullptr;
      return;
    }
    if (&s == &runtime().null_stream) forbid_null_stream_in_capture("cudaEventRecord");
    e.capture = nullptr;
    e.record = s.last =
        runtime().operations.add(mark("cudaEventRecord"), s.number, dependencies(s));
    runtime().operations.added(lock);
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&](Lock& lock) {
    SimtEvent& e = resolve(event);
    forbid_captured(e, "cudaEventSynchronize");
    forbid_in_capture("cudaEventSynchronize");
    ++runtime().synchronizations;
    if (!e.blocking) ++runtime().spinning_waits;
    synchronize(lock, {e.record});
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&](Lock& lock) {
    SimtEvent& e = resolve(event);
    forbid_captured(e, "cudaEventQuery");
    forbid_in_capture("cudaEventQuery");
    if (e.record && !runtime().operations.poll(lock, {e.record}))
      throw Failure{cudaErrorNotReady, ""};
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&](Lock&) {
    SimtEvent &b = resolve(begin), &e = resolve(end);
    if (!milliseconds) throw Failure{cudaErrorInvalidValue, ""};
    forbid_captured(b, "cudaEventElapsedTime");
    forbid_captured(e, "cudaEventElapsedTime");
    if (!b.timing || !e.timing || !b.record || !e.record)
      throw Failure{cudaErrorInvalidResourceHandle, "an event without timing or never recorded"};
    if (!b.record->done || !e.record->done) throw Failure{cudaErrorNotReady, ""};
    *milliseconds = std::chrono::duration<float, std::milli>(e.record->end - b.record->end).count();
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&](Lock& lock) {
    SimtEvent& e = resolve(event);
    queue_wait(lock, resolve(stream), e);
  });
}

}  // namespace simt_cuda

// ---- Kernels, counts ----------------------------------------------------------------------------
namespace simt {
namespace {

// Takes memory at the first launch, as lazy loading of modules does.
void take_modules() {
  if (std::exchange(runtime().has_modules, true)) return;
  if (!device_memory().take(launch_takes))
    throw Failure{cudaErrorMemoryAllocation, "no memory is left for the driver's modules"};
}

}  // namespace

cudaError_t host::launch_work(WorkPtr work, cudaStream_t stream, size_t* number) {
  return call("launch", [&](Lock& lock) {
    SimtStream& s = resolve(stream);
    take_modules();
    if (!s.capture) ++runtime().launches;
    if constexpr (watching)
      if (number && !s.capture) *number = Races::instance().issue();
    submit(lock, "a kernel", s, std::move(work));
  });
}

cudaError_t launch(Launch l, cudaStream_t stream) {
  try {
    check_limits(l);
  } catch (const std::runtime_error& e) {
    // Without the kernel's name, which the caller adds, as with CUDA.
    const std::string why = e.what(), name = l.name + ": ";
    return report(cudaErrorInvalidConfiguration,
                  why.starts_with(name) ? why.substr(name.size()) : why);
  }
  if constexpr (counting)
    if (!kernels_run_at_all) return count_launch(l.name.c_str()), cudaSuccess;
  std::string name = l.name;
  const bool is_dependent = l.dependent;
  const auto number = std::make_shared<size_t>(0);
  const auto run_it = [l = std::move(l), number] {
    if constexpr (watching) Races::instance().runs_next(*number);
    if (!host::hidden_writes) return run(l);
    Launch dependent = l;
    dependent.earlier_writes = [writes = host::hidden_writes](bool visible) {
      writes->show(visible);
    };
    run(dependent);
  };
  return launch_work(std::make_shared<const Work>(Work{.kind = Kind::kernel,
                                                       .name = std::move(name),
                                                       .run = std::move(run_it),
                                                       .dependent = is_dependent}),
                     stream, number.get());
}
cudaError_t launch(std::string name, std::function<void()> run, cudaStream_t stream) {
  return launch_work(
      std::make_shared<const Work>(Work{Kind::kernel, std::move(name), std::move(run)}), stream);
}

size_t host_synchronizations() {
  const Lock lock(runtime().mutex);
  return runtime().synchronizations;
}
size_t launches() {
  const Lock lock(runtime().mutex);
  return runtime().launches;
}
size_t early_kernels() {
  const Lock lock(runtime().mutex);
  return runtime().operations.early_kernels();
}
size_t spinning_waits() {
  const Lock lock(runtime().mutex);
  return runtime().spinning_waits;
}
std::map<std::string, std::set<int>> priorities_run() {
  const Lock lock(runtime().mutex);
  return runtime().operations.priorities();
}
size_t graph_launches() {
  const Lock lock(runtime().mutex);
  return runtime().graph_launches;
}
int let_queues_proceed() {
  HostFunction::thread_waits();
  if (!host::is_host_thread) return INT_MAX;
  Lock lock(runtime().mutex);
  return runtime().operations.proceed(lock);
}
void run_all() {
  Lock lock(runtime().mutex);
  synchronize(lock, runtime().operations.pending());
}

}  // namespace simt
