// Compares the computed bubble with the measured waiting time of stages whose blocks sleep instead
// of computing.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>

#include "engine/pipeline/pipelined_model.h"
#include "kernels/cpu/backend.h"
#include "tests/comm/shared_memory_ranks.h"
#include "tests/engine/pipeline/simulation.h"

namespace bv::test {
namespace {

constexpr double forward_seconds = .01, backward_seconds = .02;  // of a block
constexpr double slowest = 50;                                   // times these seconds
constexpr int sleeping_blocks = 8;

// times: how much longer blocks sleep. first_begins: called as the first block's forward begins.
Graph sleeping_graph(const double& times, int64_t elements = 64,
                     const std::function<void()>& first_begins = {}) {
  Graph g(DType::fp32);
  Tensor x = g.tensor("images", {elements});
  g.add({"images", "sleep", [x](const Context& r) { r.at(x); }});
  for (int i = 0; i < sleeping_blocks; ++i) {
    g.cut_here();
    const Tensor y = g.tensor("block " + std::to_string(i), {elements});
    g.grad(x), g.grad(y);
    const auto sleep = [&times](const Context& r, double seconds) {
      if (!r.planning) std::this_thread::sleep_for(std::chrono::duration<double>(times * seconds));
    };
    g.add({"block", "sleep",
           [=](const Context& r) {
             if (i == 0 && first_begins && !r.planning) first_begins();
             r.at(x), r.at(y), sleep(r, forward_seconds);
           },
           [=](const Context& r) { r.grad(y), r.grad(x), sleep(r, backward_seconds); }});
    x = y;
  }
  g.finish();
  return g;
}

PipelinePlan plan_of(const Graph& graph, const PipelineShape& shape, int stage) {
  PipelinePlan plan{.shape = shape, .grid = {.stages = shape.stages, .stage = stage}};
  const int each = sleeping_blocks / shape.parts();
  for (int part = 0; part < shape.parts(); ++part) {
    const auto cut = [&](int i) {
      return i == 0                 ? 0
             : i == sleeping_blocks ? static_cast<int>(graph.nodes().size())
                                    : graph.cuts()[static_cast<size_t>(i)];
    };
    plan.parts.push_back({cut(part * each), cut((part + 1) * each)});
  }
  return plan;
}

// Compares each stage's idle time in a step, and the first stage's waiting time by --trace, with
// the computed bubble. Other work on the machine delays threads that wake up, so steps are repeated
// until each stage has agreed once, with longer sleeps: a delay is a smaller part of them. streams:
// number of processes that have communication streams.
int compare(Communicator& stages, const PipelineShape& shape, int streams) {
  const auto backend = make_cpu_backend(1, stages.rank() < streams);
  double times = 1;
  const Graph graph = sleeping_graph(times);
  StageLinks links(*backend, stages, {.stages = shape.stages, .stage = stages.rank()});
  PipelinedModel part(*backend, graph, plan_of(graph, shape, stages.rank()), Passes::both, &links);
  const DeviceMemory saved(*backend, part.saved_bytes()), scratch(*backend, part.scratch_bytes());
  part.use(saved.data(), scratch.data());
  const double each = sleeping_blocks / shape.parts();
  const double bubble =
      simulate(shape, std::vector<PartTime>(static_cast<size_t>(shape.parts()),
                                            {each * forward_seconds, each * backward_seconds}))
          .bubble();
  bool agrees = false;
  for (; times < slowest; times *= 1.2) {
    Trace trace(*backend, 1);
    part.trace(&trace);
    stages.barrier();
    trace.start();
    part.train(std::vector<Context>(static_cast<size_t>(shape.micro_batches)), {});
    stages.barrier();  // waits for the last stage to finish
    traced(&trace, nullptr, {Work::update}, [] {});
    const double waited = trace.waited();
    const std::vector<Span> spans = trace.spans();
    const double length = spans.back().end;
    double computing = 0;
    for (const Span& span : spans)
      if (span.work == Work::forward || span.work == Work::backward)
        computing += span.end - span.begin;
    const double idle = 1 - computing / length;
    const bool first_waits_so =
        stages.rank() > 0 || std::abs(waited / length - bubble) < .1 * bubble;
    agrees = agrees || (std::abs(idle - bubble) < .1 * bubble && first_waits_so);
    if (!agrees)
      std::fprintf(stderr, "sleeps of %.3f s: idle %.3f, waited %.3f, computed %.3f\n",
                   times * forward_seconds, idle, waited / length, bubble);
    if (stages.all_reduce_scalar(agrees) == stages.size()) return 0;
  }
  return 1;
}

TEST(MeasuredBubble, IsTheComputedOne) {
  for (const auto& [shape, streams] :
       {std::pair{PipelineShape{4, 1, 4}, 4}, std::pair{PipelineShape{4, 2, 4}, 1}}) {
    Ranks ranks = start_ranks(shape.stages, 4096, hang, [shape, streams](Communicator& stages) {
      return compare(stages, shape, streams);
    });
    expect_all_end_well(ranks);
  }
}

// Messages are larger than the send buffers, and the second stage starts only when the first one
// has begun its second micro-batch.
int compute_while_sending(Communicator& stages, const Gate& second_has_begun) {
  const auto backend = make_cpu_backend(1, true);
  int begun = 0;
  const double times = 1;
  const Graph graph = sleeping_graph(times, 1 << 18, [&] {
    if (++begun == 2) second_has_begun.open();
  });
  const PipelineShape shape{2, 1, 4};
  StageLinks links(*backend, stages, {.stages = 2, .stage = stages.rank()});
  PipelinedModel part(*backend, graph, plan_of(graph, shape, stages.rank()), Passes::both, &links);
  const DeviceMemory saved(*backend, part.saved_bytes()), scratch(*backend, part.scratch_bytes());
  part.use(saved.data(), scratch.data());
  if (stages.rank() == 1) second_has_begun.wait();
  part.train(std::vector<Context>(static_cast<size_t>(shape.micro_batches)), {});
  return 0;
}

TEST(MeasuredBubble, AStageComputesWhileItSends) {
  const Gate second_has_begun;
  Ranks ranks = start_ranks(2, 4096, hang, [&](Communicator& stages) {
    return compute_while_sending(stages, second_has_begun);
  });
  expect_all_end_well(ranks);
}

}  // namespace
}  // namespace bv::test
