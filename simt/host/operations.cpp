#include "simt/host/operations.h"

#include <algorithm>
#include <climits>
#include <exception>
#include <utility>

#include "simt/device/control.h"
#include "simt/host/error.h"
#include "simt/host/memory.h"

namespace simt::host {
namespace {

constexpr unsigned late = 0, at_once = 1;

bool all_done(const std::vector<OperationPtr>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](auto& o) { return o->done; });
}

// The dependent kernel that waits only for this kernel, if it is queued already.
Operation* dependent_of(const Operation& o) {
  if (o.work->kind != Kind::kernel || o.work->start) return nullptr;
  for (Operation* next : o.after)
    if (next->work->dependent && next->missing == 1 && EarlierWrites::are_kept()) return next;
  return nullptr;
}

// Runs or starts an operation, or advances it if it is in flight.
void execute(Operation& o, Operation* dependent = nullptr) {
  const Work& work = *o.work;
  DeviceMemory& memory = device_memory();
  if (work.kind == Kind::host)
    memory.close();
  else if (work.kind != Kind::copy && work.kind != Kind::set)  // those two open what they touch
    memory.open();
  running = work.name.c_str();
  runs_here = true;
  try {
    if (work.start) {
      if (!o.under_way) o.under_way = work.start();
      if (o.under_way->advance()) o.under_way = nullptr;
    } else {
      if (dependent) dependent->hidden = std::make_shared<EarlierWrites>();
      hidden_writes = o.hidden.get();
      work.run();
      if (dependent) dependent->hidden->has_ended();
    }
    if (work.kind == Kind::kernel && !o.under_way)
      if (const std::string overrun = memory.overrun(); !overrun.empty())
        stick(cudaErrorIllegalAddress,
              work.name + " " + overrun + " (make asan FILTER=NAME shows the line)");
  } catch (const Failure& failure) {
    stick(cudaErrorIllegalAddress, work.name + ": " + failure.why);
  } catch (const std::exception& e) {
    stick(cudaErrorLaunchFailure, e.what());
  }
  hidden_writes = nullptr;
  if (sticky() != cudaSuccess) o.under_way = nullptr;
  runs_here = false;
  running = nullptr;
}

}  // namespace

OperationPtr Operations::add(WorkPtr work, size_t stream, std::vector<OperationPtr> before,
                             int priority) {
  auto o = std::make_shared<Operation>();
  o->work = std::move(work);
  o->stream = stream;
  o->number = ++numbers_;
  o->priority = priority;
  for (OperationPtr& b : before)
    if (b && !b->done) o->before.push_back(std::move(b));
  o->missing = o->before.size();
  for (const OperationPtr& b : o->before) b->after.push_back(o.get());
  pending_.emplace(o->number, o);
  if (o->missing == 0) ready_.emplace(o->number, o.get());
  return o;
}

std::vector<OperationPtr> Operations::pending() const {
  std::vector<OperationPtr> all;
  for (const auto& [number, o] : pending_) all.push_back(o);
  return all;
}

bool Operations::reads(const char* begin, size_t bytes) const {
  return std::any_of(pending_.begin(), pending_.end(), [=](const auto& item) {
    const Work& w = *item.second->work;
    return w.kind == Kind::host ||
           (w.reads && w.reads < begin + bytes && begin < w.reads + w.read_bytes);
  });
}

// ---- The order ----------------------------------------------------------------------------------
void Operations::obey_seed() {
  if (seed_ != stream_seed) start_order();
}

void Operations::start_order() {
  seed_ = stream_seed;
  random_ = seed_;
  last_stream_ = 0;
  for (int i = 0; i < 8; ++i) random();  // small seeds begin with similar numbers
  constexpr unsigned chances[][3] = {{0, 50, 90}, {0, 30, 90}, {0, 0, 40}};
  stay_ = chances[0][random() % 3];   // on the stream that ran last
  ahead_ = chances[1][random() % 3];  // operations nobody waits for run, too
  early_ = chances[2][random() % 3];  // one more runs at a call
}

unsigned Operations::random() {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  return random_ >> 33;
}

// Marks the targets and all operations that must run before them.
void Operations::want(const std::vector<OperationPtr>& targets) {
  ++waits_;
  std::vector<Operation*> stack;
  const auto visit = [&](const OperationPtr& o) {
    if (o->done || o->wanted == waits_) return;
    o->wanted = waits_;
    stack.push_back(o.get());
  };
  for (const OperationPtr& o : targets) visit(o);
  while (!stack.empty()) {
    const Operation& o = *stack.back();
    stack.pop_back();
    for (const OperationPtr& b : o.before) visit(b);
  }
}

Operation& Operations::pick(bool only_wanted) {
  if (seed_ == at_once) return *ready_.begin()->second;
  if (seed_ != late && random() % 100 < ahead_) only_wanted = false;
  std::vector<Operation*> choice;
  for (const auto& [number, o] : ready_)
    if (!only_wanted || o->wanted == waits_) choice.push_back(o);
  if (seed_ == late) return *choice.back();
  if (random() % 100 < stay_)
    for (Operation* o : choice)
      if (o->stream == last_stream_) return *o;
  return *choice[random() % choice.size()];
}

// ---- Running ------------------------------------------------------------------------------------
void Operations::run_one(Lock& lock, Operation& o) {
  ready_.erase(o.number);
  last_stream_ = o.stream;
  if (o.work->kind != Kind::mark && sticky() == cudaSuccess) {
    if (o.work->kind == Kind::kernel) priorities_[o.work->name].insert(o.priority);
    Operation* const dependent = dependent_of(o);
    if (dependent) ++early_kernels_;
    lock.unlock();
    execute(o, dependent);
    lock.lock();
  }
  if (o.under_way)
    under_way_.push_back(pending_.at(o.number));
  else
    finish(o);
  changed_.notify_all();
}

// Advances the operations in flight. Returns whether one has ended.
bool Operations::advance(Lock& lock) {
  if (under_way_.empty()) return false;
  lock.unlock();
  for (const OperationPtr& o : under_way_) execute(*o);
  lock.lock();
  const auto ended =
      std::stable_partition(under_way_.begin(), under_way_.end(),
                            [](const OperationPtr& o) { return bool(o->under_way); });
  if (ended == under_way_.end()) return false;
  for (auto o = ended; o != under_way_.end(); ++o) finish(**o);
  under_way_.erase(ended, under_way_.end());
  changed_.notify_all();
  return true;
}

bool Operations::wanted_is_ready() const {
  return std::any_of(ready_.begin(), ready_.end(),
                     [this](const auto& item) { return item.second->wanted == waits_; });
}

// Runs one operation, or advances those in flight. False: nothing can proceed until a peer acts.
bool Operations::step(Lock& lock) {
  const bool wanted = wanted_is_ready();
  const auto first = [this] { return seed_ == at_once || (seed_ != late && random() % 2 == 0); };
  if (!under_way_.empty() && (!wanted || first()) && advance(lock)) return true;
  // A peer may wait for an operation that nobody here waits for.
  if (ready_.empty()) return false;
  run_one(lock, pick(wanted));
  return true;
}

void Operations::finish(Operation& o) {
  o.done = true;
  o.end = std::chrono::steady_clock::now();
  for (Operation* a : o.after)
    if (--a->missing == 0) ready_.emplace(a->number, a);
  o.after.clear();
  o.before.clear();
  pending_.erase(o.number);  // may destroy it
}

void Operations::leave() {
  device_memory().close();
  busy_ = false;
  changed_.notify_all();
}

void Operations::added(Lock& lock) {
  obey_seed();
  if (busy_ || seed_ == late) return;
  busy_ = true;
  do {
    while (!ready_.empty() && (seed_ == at_once || random() % 100 < early_))
      run_one(lock, pick(false));
  } while (advance(lock) && seed_ == at_once);
  leave();
}

void Operations::run(Lock& lock, const std::vector<OperationPtr>& wanted) {
  obey_seed();
  while (!all_done(wanted)) {
    if (busy_) {
      changed_.wait(lock);
      continue;
    }
    busy_ = true;
    want(wanted);
    while (!all_done(wanted)) {
      if (step(lock)) continue;
      std::vector<UnderWay*> all;
      for (const OperationPtr& o : under_way_) all.push_back(o->under_way.get());
      lock.unlock();
      all.front()->sleep(all);
      lock.lock();
    }
    leave();
  }
}

bool Operations::poll(Lock& lock, const std::vector<OperationPtr>& wanted) {
  obey_seed();
  if (all_done(wanted)) return true;
  if (busy_) return false;
  busy_ = true;
  want(wanted);
  step(lock);
  leave();
  return false;
}

int Operations::proceed(Lock& lock) {
  obey_seed();
  std::vector<OperationPtr> shown;  // to others
  for (const auto& [number, o] : pending_)
    if (o->work->start) shown.push_back(o);
  if (shown.empty()) return INT_MAX;
  if (busy_) return 1;  // on another thread
  busy_ = true;
  want(shown);
  const bool moved = wanted_is_ready() ? step(lock) : advance(lock);
  leave();
  return moved ? 0 : 1;
}

void Operations::drop(Lock& lock) {
  changed_.wait(lock, [this] { return !busy_; });
  for (const OperationPtr& o : std::exchange(under_way_, {})) {
    o->under_way = nullptr;
    finish(*o);
  }
  while (!ready_.empty()) {
    Operation& o = *ready_.begin()->second;
    ready_.erase(ready_.begin());
    finish(o);
  }
  priorities_.clear();
  start_order();
}

}  // namespace simt::host
