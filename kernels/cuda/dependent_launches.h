// The innermost one of a thread says whether its launch() (launch.cuh) is launch_dependent();
// without one, it is not.
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
