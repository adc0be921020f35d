// The order of a pipeline's tasks, their exchanges and slots, and the computed bubble: checked for
// all small pipelines, against published figures, and with exchanges between real processes.
#include "engine/pipeline/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/pipeline/grid.h"
#include "tests/comm/shared_memory_ranks.h"
#include "tests/engine/pipeline/simulation.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

std::vector<PipelineShape> small_pipelines() {
  std::vector<PipelineShape> shapes;
  for (int P = 1; P <= 8; ++P)
    for (int V = 1; V <= (P == 1 ? 1 : 4); ++V)
      for (int M = 1; M <= 4 * P; ++M)
        if (V == 1 || M % P == 0) shapes.push_back({P, V, M});
  return shapes;
}

std::string name_of(const PipelineShape& s) {
  return "P=" + std::to_string(s.stages) + " V=" + std::to_string(s.chunks) +
         " M=" + std::to_string(s.micro_batches);
}

std::vector<PartTime> equal_parts(const PipelineShape& shape, double forward, double backward) {
  return std::vector<PartTime>(static_cast<size_t>(shape.parts()), {forward, backward});
}

double percent(const PipelineShape& shape) {
  return 100 * simulate(shape, equal_parts(shape, 1, 2)).bubble();
}

TEST(PipelineTasks, EachIsDoneOnceForwardFirst) {
  for (const PipelineShape& shape : small_pipelines())
    for (int stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(name_of(shape));
      std::set<std::pair<int, int>> forward, backward;  // chunk, micro
      for (const Task& t : schedule(shape, stage)) {
        ASSERT_TRUE(t.chunk >= 0 && t.chunk < shape.chunks);
        ASSERT_TRUE(t.micro >= 0 && t.micro < shape.micro_batches);
        ASSERT_TRUE(t.forward || forward.contains({t.chunk, t.micro}));
        ASSERT_TRUE((t.forward ? forward : backward).emplace(t.chunk, t.micro).second);
      }
      ASSERT_EQ(forward.size(), size_t(shape.chunks * shape.micro_batches));
      ASSERT_EQ(backward.size(), forward.size());
    }
}

TEST(PipelineTasks, WithoutAPipelineEachMicroBatchGoesForwardAndBack) {
  const PipelineShape shape{1, 1, 3};
  const std::vector<Task> expected = {{true, 0, 0},  {false, 0, 0}, {true, 0, 1},
                                      {false, 0, 1}, {true, 0, 2},  {false, 0, 2}};
  EXPECT_EQ(schedule(shape, 0), expected);
  EXPECT_EQ(rounds(shape, 0), std::vector<Round>(7));
  EXPECT_EQ(slots(shape, 0), std::vector{1});
}

// For equal parts the bubble is the known fraction (P - 1) / (V M + P - 1) of the step.
TEST(PipelineTasks, NoPipelineIsStuckAndTheBubbleIsTheKnownOne) {
  for (const PipelineShape& shape : small_pipelines())
    for (const Exchanging how : {Exchanging::overlapped, Exchanging::synchronous})
      for (const double backward : {0.5, 1., 2.}) {
        SCOPED_TRACE(name_of(shape));
        const int passes = shape.chunks * shape.micro_batches, others = shape.stages - 1;
        EXPECT_NEAR(simulate(shape, equal_parts(shape, 1, backward), how).bubble(),
                    double(others) / (passes + others), 1e-9);
      }
}

// Stages that exchange while they compute never wait longer than those that wait for each exchange.
TEST(PipelineTasks, ExchangesBesideComputingTakeNoLonger) {
  bool shorter = false;
  for (const PipelineShape& shape : small_pipelines()) {
    SCOPED_TRACE(name_of(shape));
    std::vector<PartTime> parts;
    for (int i = 0; i < shape.parts(); ++i) parts.push_back({1. + i % 3, 2. + i * 5 % 4});
    const double beside = simulate(shape, parts).length,
                 at_once = simulate(shape, parts, Exchanging::synchronous).length;
    EXPECT_LE(beside, at_once + 1e-9);
    shorter |= beside < at_once - .5;
  }
  EXPECT_TRUE(shorter);
}

// The printed bubble equals the simulation's, whatever time the parts take.
TEST(PipelineTasks, TheBubbleIsTheSimulations) {
  std::mt19937 random(1);
  for (const PipelineShape& shape : small_pipelines())
    for (int i = 0; i < 4; ++i) {
      SCOPED_TRACE(name_of(shape));
      std::vector<PartTime> parts;
      for (int p = 0; p < shape.parts(); ++p)
        parts.push_back(
            {.forward = double(1 << random() % 8), .backward = double(1 << random() % 8)});
      EXPECT_NEAR(bubble(shape, parts), simulate(shape, parts).bubble(), 1e-12);
    }
}

TEST(PipelineTasks, ThePublishedBubbles) {
  EXPECT_NEAR(percent({4, 1, 8}), 27.3, .05);
  EXPECT_NEAR(percent({4, 2, 8}), 15.8, .05);
  EXPECT_NEAR(percent({4, 3, 8}), 11.1, .05);
  EXPECT_NEAR(percent({2, 1, 4}), 20, .05);
}

TEST(PipelineTasks, AnUnevenPartIsWaitedFor) {
  const PipelineShape shape{2, 1, 4};
  const Timeline uneven = simulate(shape, std::vector<PartTime>{{1, 2}, {2, 4}});
  EXPECT_DOUBLE_EQ(uneven.length,
                   4 * 6 + 3);  // the second stage's work, 1 before it and 2 after it
  EXPECT_DOUBLE_EQ(uneven.busy, 4 * 9);
  const auto& first = uneven.stages[0].front();
  EXPECT_EQ(first.task, (Task{true, 0, 0}));
  EXPECT_EQ(first.end, 1);
}

TEST(PipelineTasks, TheRoundsOfTwoStages) {
  const PipelineShape shape{2, 1, 2};
  const Task forward0{true, 0, 0}, forward1{true, 0, 1}, backward0{false, 0, 0},
      backward1{false, 0, 1};
  EXPECT_EQ(schedule(shape, 0), (std::vector{forward0, forward1, backward0, backward1}));
  EXPECT_EQ(rounds(shape, 0), (std::vector<Round>{{},
                                                  {{true, forward0, 1}},
                                                  {{true, forward1, 1}, {false, backward0, 1}},
                                                  {{false, backward1, 1}},
                                                  {}}));
  EXPECT_EQ(schedule(shape, 1), (std::vector{forward0, backward0, forward1, backward1}));
  EXPECT_EQ(rounds(shape, 1), (std::vector<Round>{{{false, forward0, 0}},
                                                  {},
                                                  {{true, backward0, 0}, {false, forward1, 0}},
                                                  {},
                                                  {{true, backward1, 0}}}));
}

TEST(PipelineSlots, ThePublishedOnes) {
  const auto all = [](const PipelineShape& shape) {
    std::vector<std::vector<int>> stages;
    for (int stage = 0; stage < shape.stages; ++stage) stages.push_back(slots(shape, stage));
    return stages;
  };
  using Slots = std::vector<std::vector<int>>;
  EXPECT_EQ(all({4, 1, 8}), (Slots{{4}, {3}, {2}, {1}}));
  EXPECT_EQ(all({4, 2, 8}), (Slots{{8, 4}, {8, 4}, {7, 3}, {5, 1}}));  // sums / 2: 6, 6, 5, 3
  EXPECT_EQ(all({4, 3, 8}), (Slots{{8, 7, 4}, {8, 5, 4}, {8, 4, 3}, {8, 4, 1}}));
}

// A slot never holds two micro-batches, and all slots are needed.
TEST(PipelineSlots, HoldWhatIsInFlight) {
  for (const PipelineShape& shape : small_pipelines())
    for (int stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(name_of(shape) + " stage " + std::to_string(stage));
      const auto tasks = schedule(shape, stage);
      const auto exchanges = rounds(shape, stage);
      const std::vector<int> count = slots(shape, stage);
      std::map<std::pair<int, int>, int> inside;  // chunk, slot: micro-batch
      std::set<std::pair<int, int>> used;
      const auto place = [&](const Task& t) {
        return std::pair{t.chunk, slot_of(t.micro, count[size_t(t.chunk)])};
      };
      for (size_t i = 0; i < tasks.size(); ++i) {
        for (const Message& m : exchanges[i])
          if (!m.send && m.task.forward) {
            ASSERT_TRUE(inside.emplace(place(m.task), m.task.micro).second);
          }
        const auto here = place(tasks[i]);
        if (tasks[i].forward && shape.part_of(stage, tasks[i].chunk) == 0) {
          ASSERT_TRUE(inside.emplace(here, tasks[i].micro).second);
        }
        ASSERT_EQ(inside.at(here), tasks[i].micro);
        if (!tasks[i].forward) inside.erase(here);
        used.insert(here);
      }
      int sum = 0;
      for (const int n : count) sum += n;
      EXPECT_EQ(int(used.size()), sum);
      EXPECT_LE(*std::ranges::max_element(count), shape.micro_batches);
      if (shape.chunks == 1) {
        EXPECT_EQ(sum, std::min(shape.micro_batches, shape.stages - stage));
      }
    }
}

// Messages as both sides identify them: by the pass, the part that made it and the micro-batch.
std::vector<int> words_of(const PipelineShape& shape, int stage, const Message& m) {
  const int part = shape.part_of(stage, m.task.chunk);
  const int made_by = m.send ? part : part + (m.task.forward ? -1 : 1);
  return {m.task.forward, made_by, m.task.micro};
}

// Uses messages too large for a mailbox, so that a sender waits for its receiver.
int run_rounds(Communicator& peers, const PipelineShape& shape) {
  constexpr size_t ints = 50000;
  const int stage = peers.rank();
  for (const Round& round : rounds(shape, stage)) {
    if (round.empty()) continue;
    std::vector<std::vector<int>> data;
    std::vector<Transfer> transfers;
    for (const Message& m : round) {
      data.push_back(m.send ? words_of(shape, stage, m) : std::vector<int>());
      data.back().resize(ints);
      transfers.push_back({data.back().data(), ints * sizeof(int), m.peer, m.send});
    }
    peers.exchange(transfers, nullptr);
    for (size_t i = 0; i < round.size(); ++i) {
      std::vector<int> expected = words_of(shape, stage, round[i]);
      expected.resize(ints);
      if (data[i] != expected) return 1;
    }
  }
  return 0;
}

TEST(PipelineRounds, GoThroughSharedMemory) {
  for (const PipelineShape shape :
       {PipelineShape{2, 1, 3}, PipelineShape{2, 2, 4}, PipelineShape{3, 2, 3},
        PipelineShape{4, 1, 6}, PipelineShape{4, 3, 8}}) {
    SCOPED_TRACE(name_of(shape));
    Ranks ranks = start_ranks(shape.stages, 4096, hang,
                              [&](Communicator& peers) { return run_rounds(peers, shape); });
    expect_all_end_well(ranks);
  }
}

TEST(Grid, ReplicasAreNeighbours) {
  const Grid grid = grid_of(3, 6, 3);
  EXPECT_EQ(grid.stages, 3);
  EXPECT_EQ(grid.replicas, 2);
  EXPECT_EQ(grid.stage, 1);
  EXPECT_EQ(grid.replica, 1);
  EXPECT_EQ(grid.rank(), 3);
  EXPECT_EQ(grid.pipeline_group(), (std::vector{1, 3, 5}));
  EXPECT_EQ(grid.data_group(), (std::vector{2, 3}));
  EXPECT_TRUE(!grid.first() && !grid.last());
  EXPECT_EQ(error_of([] { grid_of(0, 6, 4); }),
            "-n 6 is not a multiple of --pipeline 4; try -n 4 or 8");
  EXPECT_EQ(error_of([] { grid_of(0, 1, 2); }), "-n 1 is not a multiple of --pipeline 2; try -n 2");
}

}  // namespace
}  // namespace bv::test
