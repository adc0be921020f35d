#include "engine/trace/trace.h"

namespace bv {

void Trace::start() { start_ = Clock::now(); }

void Trace::mark(Stream stream, const What& what, bool begins) {
  backend_->call_on_host(stream, [this, what, begins] { note(what, begins); });
}

void Trace::note(const What& what, bool begins) {
  const double now = std::chrono::duration<double>(Clock::now() - start_).count();
  const std::scoped_lock lock(mutex_);
  std::vector<double>& begun = begun_.at(static_cast<size_t>(what.track));
  if (begins) return begun.push_back(now);
  const double began = begun.back();
  begun.pop_back();
  if (updates_ < keeps_)
    spans_.push_back({.work = what.work,
                      .track = static_cast<int8_t>(what.track),
                      .chunk = static_cast<int16_t>(what.chunk),
                      .micro = static_cast<int16_t>(what.micro),
                      .update = static_cast<int32_t>(updates_),
                      .begin = began,
                      .end = now});
  if (what.work == Work::exchange) waiting_ += now - began;
  if (what.work != Work::update) return;
  waited_ = std::exchange(waiting_, 0);
  ++updates_;
}

double Trace::waited() const {
  const std::scoped_lock lock(mutex_);
  return waited_;
}

std::vector<Span> Trace::spans() const {
  const std::scoped_lock lock(mutex_);
  return spans_;
}

}  // namespace bv
