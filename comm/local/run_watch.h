// The interface through which waits on one machine watch a run on several machines.
#pragma once
#include <string>

namespace bv {

class PeerTimeout;

// Ranks are those of the whole run. Thread-safe.
class RunWatch {
 public:
  virtual ~RunWatch() = default;
  virtual std::string name(int rank) const = 0;  // "rank 3 (node 1, HOST)"
  // Called during a wait for rank `awaited`. Returns why the wait is over, or "".
  virtual std::string look(PeerTimeout&, int awaited) = 0;
  // Tells all other ranks why the run ends, and ends this process like end_process. culprit: the
  // rank that has died, or -1.
  [[noreturn]] virtual void end(const std::string& why, int culprit) = 0;
};

// Without a RunWatch: "rank 3".
inline std::string name_of(const RunWatch* run, int rank) {
  return run ? run->name(rank) : "rank " + std::to_string(rank);
}

}  // namespace bv
