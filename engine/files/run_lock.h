// The exclusive right to work in a run folder: two runs in one folder would remove each other's
// checkpoints. The system releases the lock when the process ends, however it ends.
#pragma once
#include <string>

namespace bv {

inline constexpr const char* run_lock_name = ".lock";  // in the run folder

class RunLock {
 public:
  // Throws UserError: "runs/x is in use by process 123". The folder must exist.
  explicit RunLock(const std::string& folder);
  ~RunLock();  // removes the lock file
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  // A warning if the file system has no locks; else empty.
  const std::string& warning() const { return warning_; }

 private:
  bool take(const std::string& folder);

  std::string path_, warning_;
  int fd_ = -1;
};

}  // namespace bv
