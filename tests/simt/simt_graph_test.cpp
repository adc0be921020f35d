// The stand-in's graphs: capture from streams, replay, and the calls a capture forbids.
#include <functional>
#include <thread>

#include "tests/simt/simt_host.h"

namespace bv::simt_gpu {
namespace {

class SimtGraph : public SimtHostTest {
 public:
  // A small step: uploads, forks to a second stream, joins, downloads.
  struct Step {
    cudaStream_t main = stream(), side = stream();
    float *in = device_array(), *left = device_array(), *right = device_array(),
          *out = device_array();
    float *host_in = pinned_array(0), *host_out = pinned_array(0);

    void queue() const {
      copy(in, host_in, cudaMemcpyHostToDevice, main);
      ok(cudaMemsetAsync(out, 0, bytes, main));
      run_twice_plus(left, in, 0, main);
      after(side, main);
      run_twice_plus(right, left, 1, side);
      run_twice_plus(left, in, 3, main);  // races with the line above
      after(main, side);
      run_twice_plus(out, right, 1, main);
      copy(host_out, out, cudaMemcpyDeviceToHost, main);
    }
    // The same step without the race.
    void queue_right() const {
      copy(in, host_in, cudaMemcpyHostToDevice, main);
      ok(cudaMemsetAsync(out, 0, bytes, main));
      after(side, main);
      run_twice_plus(right, in, 1, side);
      run_twice_plus(left, in, 3, main);
      run_twice_plus(left, left, 0, main);
      after(main, side);
      run_twice_plus(out, right, 1, main);
      run_twice_plus(out, left, 0, main);
      run_twice_plus(out, right, 1, main);
      copy(host_out, out, cudaMemcpyDeviceToHost, main);
    }
    std::vector<float> result() const { return {host_out, host_out + length}; }
  };

  static void begin(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ok(cudaStreamBeginCapture(s, mode));
  }
  static cudaError_t end(cudaStream_t s) {
    cudaGraph_t graph;
    const cudaError_t error = cudaStreamEndCapture(s, &graph);
    EXPECT_EQ(graph == nullptr, error != cudaSuccess);
    return error;
  }
  static cudaStreamCaptureStatus status_of(cudaStream_t s) {
    cudaStreamCaptureStatus status;
    ok(cudaStreamIsCapturing(s, &status));
    return status;
  }
  static cudaGraph_t capture(cudaStream_t s, const std::function<void()>& queue) {
    begin(s);
    queue();
    cudaGraph_t graph = nullptr;
    ok(cudaStreamEndCapture(s, &graph));
    return graph;
  }
  static cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    ok(cudaGraphInstantiate(&executable, graph));
    ok(cudaGraphDestroy(graph));
    return executable;
  }
  static void replay(cudaGraphExec_t executable, cudaStream_t s) {
    ok(cudaGraphLaunch(executable, s));
  }
  static std::vector<int> types(cudaGraph_t graph) {
    size_t count = 0;
    ok(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    ok(cudaGraphGetNodes(graph, nodes.data(), &count));
    std::vector<int> counts(4);
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      ok(cudaGraphNodeGetType(node, &type));
      ++counts.at(type);
    }
    return counts;
  }
};

// ---- Capture and replay -------------------------------------------------------------------------
TEST_F(SimtGraph, ReplayGivesTheBitsOfADirectRun) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    reset();
    const Step step;
    const cudaGraphExec_t graph = instantiate(capture(step.main, [&] { step.queue_right(); }));
    EXPECT_EQ(step.result(), all(0));  // a capture runs nothing
    for (const float x : {0.1f, 0.7f, 1e10f}) {
      std::fill_n(step.host_in, length, x);
      step.queue_right();
      synchronize(step.main);
      const std::vector<float> direct = step.result();
      EXPECT_EQ(direct, all(2 * (2 * x + 1) + 1));
      std::fill_n(step.host_in, length, x / 3);
      std::fill_n(step.host_out, length, 0.0f);
      replay(graph, step.main);  // reads the input when it runs
      synchronize(step.main);
      EXPECT_EQ(step.result(), all(2 * (2 * (x / 3) + 1) + 1));
      std::fill_n(step.host_in, length, x);
      for (int i = 0; i < 3; ++i) replay(graph, step.main);
      synchronize(step.main);
      EXPECT_EQ(step.result(), direct) << simt::stream_seed;
    }
  }
}

TEST_F(SimtGraph, NodesThatRaceGiveOtherResultsForSomeSeed) {
  int wrong = 0, right = 0;
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    reset();
    const Step step;
    const cudaGraphExec_t graph = instantiate(capture(step.main, [&] { step.queue(); }));
    std::fill_n(step.host_in, length, 1.0f);
    replay(graph, step.main);
    synchronize(step.main);
    (step.result() == all(11) ? right : wrong) += 1;
  }
  EXPECT_GT(right, 2);
  EXPECT_GT(wrong, 2);
}

TEST_F(SimtGraph, NodesByType) {
  const Step step;
  const cudaGraph_t graph = capture(step.main, [&] {
    step.queue();
    ok(cudaLaunchHostFunc(
        step.main, [](void*) {}, nullptr));
  });
  EXPECT_EQ(types(graph), (std::vector{4, 2, 1, 1}));  // kernels, copies, sets, host functions
  cudaGraphNode_t few[20] = {};
  size_t count = 20;
  ok(cudaGraphGetNodes(graph, few, &count));
  EXPECT_EQ(count, 8u);
  EXPECT_EQ(few[8], nullptr);
}

TEST_F(SimtGraph, ArgumentsAreThoseOfTheCapture) {
  const cudaStream_t s = stream();
  float *a = device_array(), x = 1;
  const cudaGraphExec_t graph = instantiate(capture(s, [&] { run_fill(a, x, s); }));
  x = 2;
  replay(graph, s);
  EXPECT_EQ(download(a, s), all(1));
}

TEST_F(SimtGraph, LaunchesOfAGraphFollowOneAnother) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t s[2] = {stream(), stream()};
    float *a = device_array(), *b = device_array();
    run_fill(a, 1, s[0]);
    after(s[1], s[0]);
    const cudaGraphExec_t graph = instantiate(capture(s[0], [&] {
      run_twice_plus(b, a, 1, s[0]);
      run_twice_plus(a, b, 0, s[0]);
    }));
    for (int i = 0; i < 6; ++i) replay(graph, s[i % 2]);
    ok(cudaGraphExecDestroy(graph));  // queued work runs
    ok(cudaDeviceSynchronize());
    EXPECT_EQ(download(a, s[0]), all(6826)) << simt::stream_seed;
  }
}

TEST_F(SimtGraph, StepOfGraphsNeedsNoSynchronization) {
  const Step step;
  const cudaGraphExec_t graph = instantiate(capture(step.main, [&] { step.queue_right(); }));
  const size_t waits = simt::host_synchronizations(), graphs = simt::graph_launches();
  for (int i = 0; i < 5; ++i) replay(graph, step.main);
  EXPECT_EQ(simt::host_synchronizations(), waits);
  EXPECT_EQ(simt::graph_launches() - graphs, 5u);
  simt::run_all();
}

TEST_F(SimtGraph, NodesRunAtTheirPriorityOnlyWhereItIsAskedFor) {
  for (const bool asked : {false, true}) {
    reset();
    const cudaStream_t main = stream();
    cudaStream_t urgent = nullptr;
    ok(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -9));  // the greatest is -5
    float* a = device_array();
    const cudaGraph_t graph = capture(main, [&] {
      after(urgent, main);
      run_fill(a, 1, urgent);
      after(main, urgent);
    });
    cudaGraphExec_t executable = nullptr;
    ok(cudaGraphInstantiate(&executable, graph,
                            asked ? cudaGraphInstantiateFlagUseNodePriority : 0));
    replay(executable, main);
    synchronize(main);
    EXPECT_EQ(simt::priorities_run().at("fill"), (std::set{asked ? -5 : 0}));
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 1), cudaErrorInvalidValue);
  }
}

__global__ void may_share(float* out) { out[0] = shared<float[1]>()[0]; }

// A launch in a graph runs with the limit that its kernel has at the replay.
TEST_F(SimtGraph, SharedMemoryThatAKernelMayTakeIsItsState) {
  const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const cudaStream_t s = stream();
  float* a = device_array();
  const auto run = [&](size_t shared_bytes) { launch<may_share>(1, 1, shared_bytes, s, a); };
  const cudaGraphExec_t graph = instantiate(capture(s, [&] { run(100 * 1024); }));
  run(60 * 1024);
  replay(graph, s);
  synchronize(s);
  EXPECT_EQ(cudaFuncSetAttribute(may_share, most, 1 << 20), cudaErrorInvalidValue);
  ok(cudaFuncSetAttribute(may_share, most, 60 * 1024));  // as for the small launch alone
  replay(graph, s);
  EXPECT_TRUE(is(cudaStreamSynchronize(s), cudaErrorLaunchFailure,
                 "may_share: 102400 bytes of shared memory, but above 61440 it must ask"));
}

TEST_F(SimtGraph, CopyOfAGraphWhoseMemoryIsFreed) {
  const cudaStream_t s = stream();
  float *a = device_array(), *host = pinned_array(1);
  const cudaGraphExec_t graph =
      instantiate(capture(s, [&] { copy(a, host, cudaMemcpyHostToDevice, s); }));
  ok(cudaFree(a));
  replay(graph, s);
  EXPECT_TRUE(is(cudaStreamSynchronize(s), cudaErrorIllegalAddress,
                 "is 0 bytes into an allocation of 400 bytes freed by cudaFree"));
}

TEST_F(SimtGraph, EmptyCapture) {
  const cudaStream_t s = stream();
  const cudaGraph_t graph = capture(s, [] {});
  EXPECT_EQ(types(graph), (std::vector{0, 0, 0, 0}));
  replay(instantiate(graph), s);
  synchronize(s);
  EXPECT_TRUE(is(cudaGraphDestroy(graph), cudaErrorInvalidValue, "no such graph"));
}

// ---- Forbidden in a capture ---------------------------------------------------------------------
TEST_F(SimtGraph, ForbiddenCallsEndTheCapture) {
  float *a = device_array(), *host = pinned_array(1);
  const cudaStream_t s = stream(), other = stream();
  const cudaEvent_t old = event();
  ok(cudaEventRecord(old, other));
  void* p = nullptr;
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(s); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(other); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(s); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(old); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(old); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaMalloc", [&] { return cudaMalloc(&p, 4); }},
      {"cudaFree", [&] { return cudaFree(a); }},
      {"cudaMallocHost", [&] { return cudaMallocHost(&p, 4); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(host); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(a, host, bytes, cudaMemcpyHostToDevice); }}};
  for (const auto& [name, call] : calls) {
    begin(s);
    run_fill(a, 1, s);
    EXPECT_TRUE(is(call(), cudaErrorStreamCaptureUnsupported, name));
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusInvalidated) << name;
    EXPECT_TRUE(is(cudaMemsetAsync(a, 0, bytes, s), cudaErrorStreamCaptureInvalidated, name));
    EXPECT_TRUE(
        is(end(s), cudaErrorStreamCaptureInvalidated,
           std::string("operation failed due to a previous error during capture: ") + name));
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusNone) << name;
  }
  run_fill(a, 3, s);
  EXPECT_EQ(download(a, s), all(3));  // the stream is an ordinary one again
}

TEST_F(SimtGraph, OtherThreadsAndModes) {
  const cudaStream_t s = stream();
  const auto expect_malloc_elsewhere = [](cudaError_t expected) {
    void* p = nullptr;
    std::thread([&] { EXPECT_EQ(cudaMalloc(&p, 4), expected); }).join();
  };
  begin(s);
  expect_malloc_elsewhere(cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated);

  begin(s, cudaStreamCaptureModeThreadLocal);
  expect_malloc_elsewhere(cudaSuccess);
  std::thread([&] { EXPECT_EQ(end(s), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(end(s), cudaSuccess);

  begin(s, cudaStreamCaptureModeRelaxed);
  device_array();
  EXPECT_EQ(end(s), cudaSuccess);

  begin(s, cudaStreamCaptureModeThreadLocal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ok(cudaThreadExchangeStreamCaptureMode(&mode));
  device_array();
  ok(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(end(s), cudaSuccess);
}

TEST_F(SimtGraph, ForkThatIsNotJoined) {
  const cudaStream_t s = stream(), side = stream();
  float *a = device_array(), *b = device_array();
  begin(s);
  run_fill(a, 1, s);
  after(side, s);
  run_fill(b, 1, side);
  after(s, side);
  run_fill(b, 2, side);  // after the join
  EXPECT_TRUE(is(end(s), cudaErrorStreamCaptureUnjoined,
                 "capturing stream has unjoined work: a stream was forked"));
  run_fill(b, 3, side);
  EXPECT_EQ(download(b, side), all(3));
}

TEST_F(SimtGraph, StreamsJoinByEventsOfTheCaptureOnly) {
  const cudaStream_t s = stream(), side = stream(), third = stream();
  float* a = device_array();
  const cudaEvent_t outside = event(), inside = event();
  ok(cudaEventRecord(outside, side));
  const auto begin_local = [](cudaStream_t x) { begin(x, cudaStreamCaptureModeThreadLocal); };
  begin_local(s);
  EXPECT_TRUE(is(cudaStreamWaitEvent(s, outside), cudaErrorStreamCaptureIsolation, "from outside"));
  EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated);

  begin_local(s);
  run_fill(a, 1, s);
  ok(cudaEventRecord(inside, s));
  EXPECT_TRUE(is(cudaEventQuery(inside), cudaErrorCapturedEvent, "cudaEventQuery"));
  EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(side, inside), cudaErrorCapturedEvent);

  begin_local(s);
  begin_local(third);
  ok(cudaEventRecord(inside, s));
  EXPECT_EQ(cudaStreamWaitEvent(third, inside), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(third), cudaErrorStreamCaptureInvalidated);

  begin_local(s);
  ok(cudaEventRecord(inside, s));
  ok(cudaStreamWaitEvent(side, inside));
  EXPECT_EQ(end(side), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(s), cudaErrorStreamCaptureInvalidated);

  EXPECT_EQ(end(s), cudaErrorIllegalState);
  begin_local(s);
  EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(end(s), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
}

TEST_F(SimtGraph, NullStreamBesideTheCaptureOfABlockingStream) {
  float* a = device_array();
  const cudaStream_t blocking = stream(cudaStreamDefault), free = stream(cudaStreamNonBlocking);
  begin(blocking);
  EXPECT_TRUE(is(cudaMemsetAsync(a, 0, bytes), cudaErrorStreamCaptureImplicit,
                 "cudaMemsetAsync on the null stream, which waits for a stream that is being "
                 "captured"));
  EXPECT_EQ(end(blocking), cudaErrorStreamCaptureInvalidated);
  begin(free);
  EXPECT_EQ(cudaMemsetAsync(a, 0, bytes), cudaSuccess);
  EXPECT_EQ(end(free), cudaSuccess);
}

}  // namespace
}  // namespace bv::simt_gpu
