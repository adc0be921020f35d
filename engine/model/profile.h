// Profile of a run's time. Each moment belongs to exactly one section, so they add up to the total.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace bv {

class Profile {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Profile(Clock::time_point start) : since_(start) {}
  // Ends the current section and begins another. Returns the name of the ended section.
  std::string enter(std::string section) {
    const Clock::time_point now = Clock::now();
    seconds_[current_] += std::chrono::duration<double>(now - std::exchange(since_, now)).count();
    return std::exchange(current_, std::move(section));
  }
  const std::map<std::string, double>& seconds() const { return seconds_; }  // of ended sections

 private:
  std::string current_ = "start";
  Clock::time_point since_;
  std::map<std::string, double> seconds_;
};

// Times `run` as a section; the host waits for the device before and after. Null: not timed.
template <class F>
void timed(Profile* profile, Backend& backend, const std::string& section, F run) {
  if (!profile) return run();
  backend.synchronize(nullptr);
  std::string before = profile->enter(section);
  run();
  backend.synchronize(nullptr);
  profile->enter(std::move(before));
}

}  // namespace bv
