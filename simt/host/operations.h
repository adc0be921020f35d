// The operations that the host has queued, and the order in which they run.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simt/host/earlier_writes.h"

namespace simt::host {

using Lock = std::unique_lock<std::mutex>;

// An operation that stays in flight while others run: a collective, which waits for other
// processes, or a host function, which may wait for anything.
class UnderWay {
 public:
  virtual ~UnderWay() = default;
  // Proceeds as far as possible. True: it has ended.
  virtual bool advance() = 0;
  // Called when only these operations are left, this one first: sleeps until one can continue, or
  // for a moment.
  virtual void sleep(const std::vector<UnderWay*>& all) = 0;
  static constexpr std::chrono::microseconds moment{200};
};

// The work of an operation. A graph's node has one, too: each replay queues an operation with it.
enum class Kind { kernel, copy, set, host, mark };
struct Work {
  Kind kind;
  std::string name;
  std::function<void()> run;
  const char* reads = nullptr;  // host memory: the source of a copy
  size_t read_bytes = 0;
  std::function<std::unique_ptr<UnderWay>()> start{};  // instead of run
  bool dependent = false;  // a kernel that may begin before the kernel ahead of it has ended
};
using WorkPtr = std::shared_ptr<const Work>;

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;
struct Operation {
  WorkPtr work;
  size_t stream;  // the stream's number, only used to choose the next operation
  size_t number;
  int priority;                      // doesn't change the order, as CUDA guarantees none
  std::vector<OperationPtr> before;  // its dependencies; empty once it is done
  std::vector<Operation*> after;
  size_t missing = 0;  // operations in `before` that are not done yet
  size_t wanted = 0;   // the number of the last wait that needs it
  std::unique_ptr<UnderWay> under_way{};
  bool done = false;
  std::shared_ptr<EarlierWrites> hidden{};  // of a dependent kernel: writes of the one ahead
  std::chrono::steady_clock::time_point end{};
};

// The writes that the running dependent kernel must not see yet, or null.
inline thread_local EarlierWrites* hidden_writes = nullptr;

// Guarded by the runtime's one lock, which is released while an operation runs. Operations run one
// at a time, on the thread that waits for them; those in flight advance in between.
class Operations {
 public:
  OperationPtr add(WorkPtr, size_t stream, std::vector<OperationPtr> before, int priority = 0);
  // Called after an operation was added: a few may run now.
  void added(Lock&);
  void run(Lock&, const std::vector<OperationPtr>& wanted);
  // Returns whether all are done. If not, some may run, so that polling makes progress.
  bool poll(Lock&, const std::vector<OperationPtr>& wanted);
  // Called while the host waits for something other than the device. Runs a part of what others may
  // wait for: operations that stay in flight, and what precedes them. All else stays as late as it
  // may be. Returns the milliseconds until the next call: 0 if something ran, INT_MAX if nothing of
  // that kind is queued.
  int proceed(Lock&);
  std::vector<OperationPtr> pending() const;
  // Whether a queued operation may read these bytes on the host.
  bool reads(const char* begin, size_t bytes) const;
  // Priorities of the kernels that have run, by name.
  const std::map<std::string, std::set<int>>& priorities() const { return priorities_; }
  // Kernels that began before the kernel ahead of them had ended.
  size_t early_kernels() const { return early_kernels_; }
  // Drops all operations and restarts the order.
  void drop(Lock&);

 private:
  void obey_seed();
  void start_order();
  unsigned random();
  void want(const std::vector<OperationPtr>&);
  Operation& pick(bool only_wanted);
  bool wanted_is_ready() const;
  void run_one(Lock&, Operation&);
  bool step(Lock&);
  bool advance(Lock&);
  void finish(Operation&);
  void leave();

  std::map<size_t, OperationPtr> pending_;  // by number
  std::map<size_t, Operation*> ready_;      // operations without pending dependencies
  std::vector<OperationPtr> under_way_;     // in the order in which they began
  std::map<std::string, std::set<int>> priorities_;
  size_t numbers_ = 0, waits_ = 0, early_kernels_ = 0;
  bool busy_ = false;
  std::condition_variable changed_;

  unsigned seed_ = 0;
  uint64_t random_ = 0;
  unsigned stay_ = 0, ahead_ = 0, early_ = 0;  // percent: see start_order
  size_t last_stream_ = 0;
};

}  // namespace simt::host
