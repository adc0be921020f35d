// Timeline of this process: forward, backward, exchanges, all-reduces, updates. The device calls
// the host at both ends of each span, in stream order, so a recorded graph is traced like any other
// work. Without --trace there is no Trace, and no call.
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

enum class Work : uint8_t { forward, backward, exchange, update, evaluation, all_reduce };

inline constexpr int64_t traced_updates = 100;  // --trace: the first ones of a process

// One piece of work. Those of a track follow each other, or one is inside another.
struct Span {
  Work work;
  int8_t track;          // 0: computing and waiting for it; 1, 2, ...: channels of gradients
  int16_t chunk, micro;  // of forward and backward; else -1
  int32_t update;        // in which it ran, from 0
  double begin, end;     // seconds since the trace began
};

class Trace {
 public:
  // updates: how many are kept, 0 for a process that only needs to know how long it waits.
  Trace(Backend& backend, int64_t updates) : backend_(&backend), keeps_(updates) {}
  void start();  // now is 0

  struct What {
    Work work;
    int track = 0, chunk = -1, micro = -1;
  };
  void mark(Stream, const What&, bool begins);

  // Seconds of the last update that were spent in exchanges, except those inside other work.
  double waited() const;
  std::vector<Span> spans() const;

 private:
  using Clock = std::chrono::steady_clock;
  void note(const What&, bool begins);

  Backend* backend_;
  int64_t keeps_, updates_ = 0;
  Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;                   // spans end on the threads of several streams
  std::array<std::vector<double>, 16> begun_;  // by track, the outermost first
  double waiting_ = 0, waited_ = 0;
  std::vector<Span> spans_;
};

// Calls `issue`, which enqueues work on the stream, between two marks; without a trace, no marks.
template <class F>
void traced(Trace* trace, Stream stream, const Trace::What& what, F issue) {
  if (!trace) return issue();
  trace->mark(stream, what, true);
  issue();
  trace->mark(stream, what, false);
}

}  // namespace bv
