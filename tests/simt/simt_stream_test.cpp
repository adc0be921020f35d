// The stand-in's streams and events: the results of programs that forget to wait.
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "base/wait.h"
#include "tests/simt/simt_host.h"

namespace bv::simt_gpu {
namespace {

class SimtStream : public SimtHostTest {};

// ---- Waits that are missing ---------------------------------------------------------------------
TEST_F(SimtStream, EventWait) {
  const auto consume = [](bool waits) {
    reset();
    const cudaStream_t producer = stream(), consumer = stream();
    float *a = device_array(), *b = device_array(), *host = pinned_array(0);
    run_fill(a, 1, producer);
    if (waits) after(consumer, producer);
    run_twice_plus(b, a, 1, consumer);
    copy(host, b, cudaMemcpyDeviceToHost, consumer);
    ok(cudaDeviceSynchronize());
    return std::vector(host, host + length);
  };
  EXPECT_TRUE(std::isnan(consume(false)[0]));  // it reads data that is not written yet
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed)
    EXPECT_EQ(consume(true), all(3)) << simt::stream_seed;
}

TEST_F(SimtStream, EventWaitBeforeAnOverwrite) {
  const auto read = [](bool waits) {
    reset();
    const cudaStream_t s = stream(), reader = stream();
    float *a = device_array(), *host = pinned_array(0);
    run_fill(a, 1, s);
    after(reader, s);
    copy(host, a, cudaMemcpyDeviceToHost, reader);
    if (waits) after(s, reader);
    run_fill(a, 2, s);
    synchronize(s);
    synchronize(reader);
    return host[0];
  };
  EXPECT_EQ(read(false), 2);
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed)
    EXPECT_EQ(read(true), 1) << simt::stream_seed;
}

TEST_F(SimtStream, HostReadsBeforeItHasSynchronized) {
  float *a = device_array(), *host = pinned_array(5);
  run_fill(a, 1, nullptr);
  copy(host, a, cudaMemcpyDeviceToHost, nullptr);
  EXPECT_TRUE(std::isnan(host[0]));  // neither the old value nor the new one
  synchronize(nullptr);
  EXPECT_EQ(host[0], 1);
}

// While the host waits for something else, host functions run, and what precedes them; the rest
// stays late.
TEST_F(SimtStream, ProceedsWhileTheHostWaits) {
  on_each_tick(simt::let_queues_proceed);
  const cudaStream_t s = stream(), other = stream();
  float *a = device_array(), *host = pinned_array(5), *later = pinned_array(5);
  struct Flag {
    std::mutex mutex;
    Condition changed;
    bool up = false;
  } flag;
  run_fill(a, 1, s);
  copy(host, a, cudaMemcpyDeviceToHost, s);
  ok(cudaLaunchHostFunc(
      s,
      [](void* data) {
        Flag& its = *static_cast<Flag*>(data);
        const std::lock_guard lock(its.mutex);
        its.up = true;
        its.changed.notify_all();
      },
      &flag));
  copy(later, a, cudaMemcpyDeviceToHost, s);
  run_fill(a, 3, other);
  {
    std::unique_lock lock(flag.mutex);
    flag.changed.wait(lock, [&] { return flag.up; });
  }
  EXPECT_EQ(host[0], 1);
  EXPECT_NE(later[0], 1);
  on_each_tick(nullptr);
  ok(cudaDeviceSynchronize());
}

// A host function that waits doesn't keep the device from the work of other streams.
TEST_F(SimtStream, RunsBesideAHostFunctionThatWaits) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t s = stream(), other = stream();
    float *a = device_array(), *host = pinned_array(5);
    std::atomic<bool> may_end = false;
    ok(cudaLaunchHostFunc(
        s, [](void* data) { static_cast<std::atomic<bool>*>(data)->wait(false); }, &may_end));
    run_fill(a, 1, other);
    copy(host, a, cudaMemcpyDeviceToHost, other);
    (void)cudaStreamQuery(s);
    synchronize(other);
    EXPECT_EQ(host[0], 1) << simt::stream_seed;
    may_end = true;
    may_end.notify_all();
    synchronize(s);
  }
}

TEST_F(SimtStream, DestinationIsKeptForWhatIsStillToReadIt) {
  float *a = device_array(), *host = pinned_array(5);
  run_fill(a, 1, nullptr);
  float* b = device_array();
  copy(b, host, cudaMemcpyHostToDevice, nullptr);
  copy(host, a, cudaMemcpyDeviceToHost, nullptr);  // after it: allowed
  EXPECT_EQ(download(b, nullptr), all(5));
  EXPECT_EQ(host[0], 1);
}

TEST_F(SimtStream, StagingBufferReusedTooEarly) {
  const auto upload_two = [](bool waits) {
    reset();
    float *a = device_array(), *b = device_array(), *staging = pinned_array(1);
    copy(a, staging, cudaMemcpyHostToDevice, nullptr);
    if (waits) synchronize(nullptr);
    std::fill_n(staging, length, 2.0f);
    copy(b, staging, cudaMemcpyHostToDevice, nullptr);
    return download(a, nullptr)[0] + 10 * download(b, nullptr)[0];
  };
  EXPECT_EQ(upload_two(false), 22);
  EXPECT_EQ(upload_two(true), 21);
}

TEST_F(SimtStream, StagingBufferFilledTooLate) {
  const auto upload = [](bool fills_first) {
    float *a = device_array(), *staging = pinned_array(1);
    if (fills_first) std::fill_n(staging, length, 2.0f);
    copy(a, staging, cudaMemcpyHostToDevice, nullptr);
    std::fill_n(staging, length, 2.0f);
    return download(a, nullptr)[0];
  };
  simt::stream_seed = 1;  // a fast GPU
  EXPECT_EQ(upload(false), 1);
  EXPECT_EQ(upload(true), 2);
}

TEST_F(SimtStream, PlainMemcpyOnlyPromisesThatTheHostMayGoOn) {
  const cudaStream_t s = stream();  // does not wait for the null stream, where the copy is
  float *a = device_array(), *b = device_array();
  std::vector<float> host = all(1);
  ok(cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice));
  host = all(7);
  run_twice_plus(b, a, 0, s);
  EXPECT_TRUE(std::isnan(download(b, s)[0]));
  EXPECT_EQ(download(a, nullptr), all(1));
}

TEST_F(SimtStream, ASeedFindsEveryOrder) {
  // Two streams write the same array: each is last for some seeds.
  int last[2] = {};
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t s[2] = {stream(), stream()};
    float* a = device_array();
    for (int i : {0, 1}) run_fill(a, float(i), s[i]);
    ok(cudaDeviceSynchronize());
    ++last[int(download(a, nullptr)[0])];
  }
  EXPECT_GT(last[0], 2);
  EXPECT_GT(last[1], 2);
}

TEST_F(SimtStream, ASeedGivesTheSameOrderEachTime) {
  const auto order = [](unsigned seed) {
    reset();
    simt::stream_seed = seed;
    static std::string seen;
    seen.clear();
    cudaStream_t s[4];
    for (cudaStream_t& one : s) one = stream();
    static char names[] = "0123";
    for (int round = 0; round < 5; ++round)
      for (int i = 0; i < 4; ++i)
        cudaLaunchHostFunc(
            s[i], [](void* name) { seen += *static_cast<char*>(name); }, &names[i]);
    for (cudaStream_t one : s) synchronize(one);
    return seen;
  };
  std::set<std::string> all_orders;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    EXPECT_EQ(order(seed), order(seed)) << seed;
    all_orders.insert(order(seed));
  }
  EXPECT_GT(all_orders.size(), 10u);
}

// ---- Events -------------------------------------------------------------------------------------
TEST_F(SimtStream, WaitIsForTheRecordThatWasLastAtTheCall) {
  const cudaStream_t producer = stream(), consumer = stream();
  const cudaEvent_t e = event();
  float *a = device_array(), *b = device_array();
  ok(cudaStreamWaitEvent(consumer, e));  // never recorded: no wait
  run_fill(a, 1, producer);
  ok(cudaEventRecord(e, producer));
  ok(cudaStreamWaitEvent(consumer, e));
  run_fill(a, 2, producer);
  ok(cudaEventRecord(e, producer));  // too late for the wait
  run_twice_plus(b, a, 0, consumer);
  EXPECT_EQ(download(b, consumer), all(2));  // from the first fill: the second hasn't run yet
  ok(cudaEventSynchronize(e));
  EXPECT_EQ(download(a, producer), all(2));
}

TEST_F(SimtStream, HostWaitsForAnEventOnlyAndNotForWhatFollowsIt) {
  float *a = device_array(), *first = pinned_array(0), *second = pinned_array(0);
  const cudaEvent_t e = event();
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);  // never recorded
  run_fill(a, 1, nullptr);
  copy(first, a, cudaMemcpyDeviceToHost, nullptr);
  ok(cudaEventRecord(e));
  copy(second, a, cudaMemcpyDeviceToHost, nullptr);
  ok(cudaEventSynchronize(e));
  EXPECT_EQ(first[0], 1);
  EXPECT_TRUE(std::isnan(second[0]));
}

TEST_F(SimtStream, QueriesComeToAnEnd) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t s = stream();
    const cudaEvent_t e = event();
    float* a = device_array();
    EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
    for (int i = 0; i < 3; ++i) run_fill(a, float(i), s);
    ok(cudaEventRecord(e, s));
    run_fill(a, 3, s);
    int asked = 1;
    while (cudaEventQuery(e) == cudaErrorNotReady) ++asked;
    EXPECT_GT(asked, simt::stream_seed == 0 ? 3 : 0);
    EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
    while (cudaStreamQuery(s) == cudaErrorNotReady) ++asked;
    EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
    EXPECT_LT(asked, 100);
  }
}

TEST_F(SimtStream, ElapsedTime) {
  cudaEvent_t begin = nullptr, end = nullptr;
  for (cudaEvent_t* e : {&begin, &end}) ok(cudaEventCreate(e));
  float ms = -1, *a = device_array();
  EXPECT_TRUE(is(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle, "never"));
  ok(cudaEventRecord(begin));
  run_fill(a, 1, nullptr);
  ok(cudaEventRecord(end));
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  ok(cudaEventSynchronize(end));
  ok(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 0);
  EXPECT_LT(ms, 10000);
}

TEST_F(SimtStream, WhatIsDestroyedIsNoHandle) {
  const cudaStream_t s = stream();
  const cudaEvent_t e = event();
  float* a = device_array();
  run_fill(a, 1, s);
  ok(cudaEventRecord(e, s));
  ok(cudaStreamDestroy(s));  // queued work runs
  ok(cudaEventSynchronize(e));
  EXPECT_EQ(download(a, nullptr), all(1));
  ok(cudaEventDestroy(e));
  EXPECT_TRUE(is(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle, "no such stream"));
  EXPECT_TRUE(is(cudaEventRecord(e), cudaErrorInvalidResourceHandle, "no such event"));
}

// ---- The null stream ----------------------------------------------------------------------------
TEST_F(SimtStream, NullStreamAndBlockingStreamsFollowOneAnother) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t blocking = stream(cudaStreamDefault), gone = stream(cudaStreamDefault);
    float *a = device_array(), *b = device_array(), *c = device_array(), *d = device_array();
    run_fill(a, 1, blocking);
    run_fill(d, 5, gone);
    ok(cudaStreamDestroy(gone));
    run_twice_plus(b, a, 1, nullptr);
    run_twice_plus(c, b, 1, blocking);
    EXPECT_EQ(download(c, blocking), all(7)) << simt::stream_seed;
    EXPECT_EQ(download(d, nullptr), all(5)) << simt::stream_seed;
  }
}

TEST_F(SimtStream, NullStreamDoesNotWaitForNonBlockingStreams) {
  const cudaStream_t s = stream(cudaStreamNonBlocking);
  float *a = device_array(), *b = device_array();
  run_fill(a, 1, s);
  run_twice_plus(b, a, 1, nullptr);
  EXPECT_TRUE(std::isnan(download(b, nullptr)[0]));
}

// ---- Host functions, threads --------------------------------------------------------------------
TEST_F(SimtStream, HostFunctionRunsInItsTurnAndMayNotCall) {
  struct PreviewRecord {
    const float* host;
    float value = 0;
    cudaError_t error = cudaSuccess;
  } seen;
  float *a = device_array(), *host = pinned_array(0);
  seen.host = host;
  run_fill(a, 4, nullptr);
  copy(host, a, cudaMemcpyDeviceToHost, nullptr);
  const auto look = [](void* data) {
    auto& s = *static_cast<PreviewRecord*>(data);
    s.value = s.host[0];
    s.error = cudaDeviceSynchronize();
  };
  ok(cudaLaunchHostFunc(nullptr, look, &seen));
  EXPECT_EQ(seen.value, 0);
  synchronize(nullptr);
  EXPECT_EQ(seen.value, 4);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
}

TEST_F(SimtStream, ManyThreadsQueueAndWait) {
  for (const unsigned seed : {0, 1, 2, 3}) {
    simt::stream_seed = seed;
    std::atomic<int> wrong = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([t, &wrong] {
          const cudaStream_t s = stream();
          float *a = device_array(), *b = device_array(), *host = pinned_array(float(t));
          for (int i = 0; i < 20; ++i) {
            copy(a, host, cudaMemcpyHostToDevice, s);
            run_twice_plus(b, a, float(i), s);
            wrong += download(b, s) != all(float(2 * t + i));
          }
          ok(cudaFree(a));
        });
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

// ---- Errors -------------------------------------------------------------------------------------
__global__ void waits_at_two_places(float* a) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncthreads();
  *a = 1;
}

TEST_F(SimtStream, ErrorOfAKernelComesWithTheWaitAndStays) {
  float *a = device_array(), *b = device_array();
  launch<waits_at_two_places>(1, 32, 0, nullptr, a);
  run_fill(b, 1, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(is(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure,
                 "waits_at_two_places: block (0,0,0): "));
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  float* c = nullptr;
  EXPECT_TRUE(
      is(cudaMalloc(&c, 4), cudaErrorLaunchFailure, "waits_at_two_places: block (0,0,0): "));
  EXPECT_THROW(run_fill(b, 1, nullptr), std::runtime_error);
  EXPECT_EQ(cudaFree(a), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  b = device_array();
  run_fill(b, 1, nullptr);
  EXPECT_EQ(download(b, nullptr), all(1));
}

TEST_F(SimtStream, RefusedLaunchIsRefusedAtTheCall) {
  float* a = device_array();
  EXPECT_EQ(message_of([&] { launch<fill>(1, 2000, 0, nullptr, a, 1.0f, length); }),
            "fill: invalid configuration argument: a block of (2000,1,1) threads, but it can have "
            "(1,1,1) to (1024,1024,64)");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // nothing has been queued
}

TEST_F(SimtStream, CountsWhatTheHostDoes) {
  float* a = device_array();
  const size_t waits = simt::host_synchronizations(), kernels = simt::launches();
  for (int i = 0; i < 3; ++i) run_fill(a, 1, nullptr);
  ok(cudaMemsetAsync(a, 0, bytes));
  simt::run_all();
  EXPECT_EQ(simt::launches() - kernels, 3u);
  EXPECT_EQ(simt::host_synchronizations() - waits, 0u);
  synchronize(nullptr);
  ok(cudaDeviceSynchronize());
  ok(cudaFree(a));
  EXPECT_EQ(simt::host_synchronizations() - waits, 3u);
}

// ---- The device ---------------------------------------------------------------------------------
TEST_F(SimtStream, DeviceIsWhatItSays) {
  cudaDeviceProp p;
  ok(cudaGetDeviceProperties(&p, 0));
  int count = 0, shared = 0;
  ok(cudaGetDeviceCount(&count));
  ok(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(size_t(shared), p.sharedMemPerBlockOptin);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_TRUE(is(cudaSetDevice(1), cudaErrorInvalidDevice, "there is only device 0, not 1"));
}

}  // namespace
}  // namespace bv::simt_gpu
