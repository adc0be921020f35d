// Collectives and the rest of the cuda backend with one rank: priorities in graphs, a communicator
// held by graphs, memory taken by others.
#include <stdexcept>

#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "comm/nccl/nccl_communicator.h"
#include "kernels/cuda/backend.h"
#include "tests/simt/simt_host.h"

namespace bv::simt_gpu {
namespace {

constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30;

class SimtNccl : public SimtHostTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    reset();
  }
  void TearDown() override {
    simt::memory_bytes = 16 * GiB;
    simt::launch_takes = simt::collective_takes = 0;
    SimtHostTest::TearDown();
  }
};

// The only rank of a run, and a recording of its communication stream's work in a step.
struct OneRank {
  SharedRegion region = SharedRegion::create(1);
  std::unique_ptr<Backend> backend = make_backend({});
  std::unique_ptr<Communicator> communicator = make_nccl_communicator(
      *backend, {.place = {.rank = 0, .size = 1, .timeout = 5, .supervised = false},
                 .fd = region.fd(),
                 .host_comm = make_shared_memory_communicator({})});
  Event forked = backend->create_event(), joined = backend->create_event();
  DeviceMemory data{*backend, bytes};
  std::unique_ptr<Recording> step = backend->recording([this] {
    const Stream stream = backend->communication_stream();
    backend->record(forked, nullptr);
    backend->wait(stream, forked);
    communicator->all_reduce(data.data<float>(), length, stream);
    backend->record(joined, stream);
    backend->wait(nullptr, joined);
  });

  void replay(int times) {
    for (int i = 0; i < times; ++i) step->replay();
    backend->synchronize(nullptr);
  }
};

TEST_F(SimtNccl, CollectivesRunAtTheirStreamsPriorityInGraphsToo) {
  OneRank rank;
  rank.replay(3);
  EXPECT_GT(rank.step->nodes(), 0);
  EXPECT_EQ(simt::priorities_run().at("ncclAllReduce<float>"), (std::set{-1}));
  rank.step = nullptr;
}

TEST_F(SimtNccl, GraphsEndBeforeTheirCommunicator) {
  OneRank rank;
  rank.replay(2);
  EXPECT_EXIT(
      {
        rank.communicator = nullptr;
        _exit(0);
      },
      testing::KilledBySignal(SIGABRT),
      "ncclCommDestroy: 1 collectives of this communicator are in graphs that have not been "
      "destroyed: NCCL waits for that forever");
  rank.step = nullptr;  // events of the capture live on
  rank.communicator = nullptr;
}

TEST_F(SimtNccl, ThePlanLeavesRoomForModulesAndNccl) {
  simt::memory_bytes = GiB + 64 * MiB;
  simt::launch_takes = 600 * MiB, simt::collective_takes = 424 * MiB;
  OneRank rank;
  const DeviceMemory plan(*rank.backend, rank.backend->memory_limit());
  EXPECT_GT(plan.bytes(), 63 * MiB);
  run_fill(rank.data.data<float>(), 1, nullptr);
  rank.replay(2);
  rank.step = nullptr;
}

TEST_F(SimtNccl, OfALargeDevicesMemoryTwoPercentAreLeft) {
  simt::memory_bytes = 200 * GiB;
  const size_t limit = make_backend({})->memory_limit();  // minus what the backend has allocated
  EXPECT_LE(limit, 196 * GiB);
  EXPECT_GT(limit, 196 * GiB - MiB);
}

TEST_F(SimtNccl, MemoryThatOthersTakeIsMissing) {
  simt::memory_bytes = 1000 * 1000;
  simt::launch_takes = 900 * 1000;
  float* p = device_array();
  run_fill(p, 1, nullptr);
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 100 * 1000 - bytes);
  reset();
  device_array(100 * 1000 + 1);
  const std::string refusal = message_of([&] { run_fill(p, 1, nullptr); });
  EXPECT_NE(refusal.find("fill: out of memory"), std::string::npos) << refusal;
}

// ---- the backend's waits and callbacks ----------------------------------------------------------
TEST_F(SimtNccl, TheHostSleepsWhileItWaitsForAnEvent) {
  const auto backend = make_backend({});
  const size_t before = simt::spinning_waits();
  const Event mine = backend->create_event();
  backend->record(mine, nullptr);
  backend->host_wait(mine);
  EXPECT_EQ(simt::spinning_waits(), before);
  const cudaEvent_t other = event();
  ok(cudaEventRecord(other));
  ok(cudaEventSynchronize(other));
  EXPECT_EQ(simt::spinning_waits(), before + 1);
}

// Only a callback captured in a graph is kept: the graph may call it many times.
TEST_F(SimtNccl, ACallbackIsForgottenOnceItHasRun) {
  const auto backend = make_backend({});
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = owned;
  backend->call_on_host(nullptr, [kept = std::move(owned)] { ++*kept; });
  backend->synchronize(nullptr);
  EXPECT_TRUE(seen.expired());
}

TEST_F(SimtNccl, AnExceptionInACallbackEndsTheProcessWithItsReason) {
  const auto backend = make_backend({});
  EXPECT_EXIT(
      {
        backend->call_on_host(nullptr, [] { throw std::runtime_error("rank 1 sent 7 bytes"); });
        backend->synchronize(nullptr);
      },
      testing::ExitedWithCode(1), "a host function of a stream failed: rank 1 sent 7 bytes");
}

}  // namespace
}  // namespace bv::simt_gpu
