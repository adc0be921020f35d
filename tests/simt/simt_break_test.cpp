// SIMT_BREAK: the message if the chosen thread never began.
#include "tests/simt/simt_device.h"

namespace bv::simt_gpu {
namespace {

__global__ void planted_break(int*) {}
__global__ void another_name(int*) {}

class SimtBreak : public SimtDevice {
 protected:
  // Runs both kernels in a process that then ends.
  static void run_with(const char* place) {
    setenv("SIMT_BREAK", place, 1);
    run<planted_break>(dim3(3, 2), 40, 0, static_cast<int*>(nullptr));
    run<another_name>(1, 32, 0, static_cast<int*>(nullptr));
    std::exit(0);
  }
};

TEST_F(SimtBreak, AKernelThatWasNotLaunched) {
  EXPECT_EXIT(run_with("planted_brk,1,0,0,5,0,0"), testing::ExitedWithCode(0),
              "^SIMT_BREAK=planted_brk,1,0,0,5,0,0 stopped nowhere: no such kernel; the nearest of "
              "those launched: planted_break, grid \\(3,2,1\\) of blocks \\(40,1,1\\); "
              "another_name, grid \\(1,1,1\\) of blocks \\(32,1,1\\)\n$");
}

TEST_F(SimtBreak, ABlockOrThreadOutsideOfWhatWasLaunched) {
  for (const char* place : {"planted,100,0,0,5,0,0", "planted,1,0,0,40,0,0"})
    EXPECT_EXIT(run_with(place), testing::ExitedWithCode(0),
                "stopped nowhere: no such block or thread; launched: planted_break, grid "
                "\\(3,2,1\\) of blocks \\(40,1,1\\)\n$");
}

TEST_F(SimtBreak, IsSilentOnceItHasStopped) {
  EXPECT_EXIT(run_with("planted,2,1,0,39,0,0"), testing::ExitedWithCode(0), "^$");
}

TEST_F(SimtBreak, EmptyIsUnset) { EXPECT_EXIT(run_with(""), testing::ExitedWithCode(0), "^$"); }

}  // namespace
}  // namespace bv::simt_gpu
