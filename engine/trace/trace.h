// Timeline of this process: forward, backward, exchanges, sums, updates. The device calls
// the host at both ends of each span, in stream order, so recorded graphs are traced like other
// work. Without --trace there is no Trace and no callback.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace bv {

enum class Work : uint8_t {
  forward,
  backward,
  exchange,
  update,
  evaluation,
  all_reduce,
  reduce_scatter,
  all_gather
};

inline constexpr int64_t traced_updates = 100;  // per process, from the first on

// One piece of work. The spans of a track follow each other or are nested.
struct Span {
  Work work;
  int8_t track;          // 0: computation and its waits; 1, 2, ...: channels of gradients
  int16_t chunk, micro;  // for forward and backward; else -1
  int32_t update;        // number of its update, from 0
  double begin, end;     // seconds since the trace began
};

class Trace {
 public:
  // updates: how many to keep; 0 for a process that only measures its waiting time.
  Trace(Backend& backend, int64_t updates) : backend_(&backend), keeps_(updates) {}
  void start();  // sets the time to 0

  struct What {
    Work work;
    int track = 0, chunk = -1, micro = -1;
  };
  void mark(Stream, const What&, bool begins);

  // Seconds of the last update spent in exchanges, except those inside other work.
  double waited() const;
  std::vector<Span> spans() const;

 private:
  using Clock = std::chrono::steady_clock;
  void note(const What&, bool begins);

  Backend* backend_;
  int64_t keeps_, updates_ = 0;
  Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;                   // threads of several streams end spans
  std::array<std::vector<double>, 16> begun_;  // by track, outermost span first
  double waiting_ = 0, waited_ = 0;
  std::vector<Span> spans_;
};

// Calls `issue`, which enqueues work on the stream, between two marks. Null trace: without marks.
template <class F>
void traced(Trace* trace, Stream stream, const Trace::What& what, F issue) {
  if (!trace) return issue();
  trace->mark(stream, what, true);
  issue();
  trace->mark(stream, what, false);
}

}  // namespace bv
