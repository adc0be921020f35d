// In the scope of a DependentLaunches(true), launch() (launch.cuh) called by the same thread acts
// as launch_dependent(). The innermost scope counts; without one, launches are ordinary.
#pragma once

namespace bv::BAREVISION_GPU {

class DependentLaunches {
 public:
  explicit DependentLaunches(bool on) : before_(now_) { now_ = on; }
  ~DependentLaunches() { now_ = before_; }
  DependentLaunches(const DependentLaunches&) = delete;
  static bool now() { return now_; }

 private:
  inline static thread_local bool now_ = false;
  bool before_;
};

}  // namespace bv::BAREVISION_GPU
