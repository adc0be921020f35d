// Output of --trace.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/trace/chrome_trace.h"
#include "kernels/cpu/backend.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using nlohmann::json;

TEST(TraceTest, SpansAreWhatTheStreamDid) {
  const auto backend = make_cpu_backend(1, false);
  Trace trace(*backend, 1);
  trace.start();
  double inside = 0;
  const auto sleep = [&] {
    const double start = seconds_now();
    usleep(20000);
    inside = seconds_now() - start;
  };
  // Lower and upper bound of a span's seconds.
  const auto traced_sleep = [&](const Trace::What& what) {
    const double start = seconds_now();
    traced(&trace, nullptr, what, sleep);
    return std::pair(inside - 1e-6, seconds_now() - start + 1e-6);
  };
  const auto [least, most] = traced_sleep({Work::forward, 0, 1, 2});
  const auto [least_wait, most_wait] = traced_sleep({Work::exchange});
  traced(&trace, nullptr, {Work::update},
         [&] { traced(&trace, nullptr, {Work::all_reduce}, [] { usleep(10000); }); });
  traced(&trace, nullptr, {Work::forward}, [] {});  // in an update that isn't kept
  const std::vector<Span> spans = trace.spans();
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].work, Work::forward);
  EXPECT_EQ(spans[0].chunk, 1);
  EXPECT_EQ(spans[0].micro, 2);
  EXPECT_GE(spans[0].end - spans[0].begin, least);
  EXPECT_LE(spans[0].end - spans[0].begin, most);
  EXPECT_GE(spans[1].begin, spans[0].end);
  EXPECT_EQ(spans[2].work, Work::all_reduce);  // inside the update
  EXPECT_EQ(spans[3].work, Work::update);
  EXPECT_LE(spans[3].begin, spans[2].begin);
  EXPECT_GE(trace.waited(), least_wait);
  EXPECT_LE(trace.waited(), most_wait);
}

TEST(TraceTest, NothingIsCalledWithoutATrace) {
  int calls = 0;
  traced(nullptr, nullptr, {Work::forward}, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

std::vector<json> named(const json& trace, const std::string& name, int rank) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == name && event["pid"] == rank) found.push_back(event);
  return found;
}

TEST(TraceTest, ARankIsIdleBetweenItsSpans) {
  const std::vector<RankTrace> ranks = {{"rank 0",
                                         {{Work::forward, 0, 0, 3, 7, 1.0, 1.5},
                                          {Work::backward, 0, 0, 3, 7, 2.0, 3.0},
                                          {Work::all_reduce, 1, -1, -1, 7, 2.5, 3.5}}}};
  const json trace = json::parse(chrome_trace(ranks));
  const auto forward = named(trace, "forward", 0), idle = named(trace, "idle", 0),
             reduced = named(trace, "all-reduce", 0);
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward[0]["ph"], "X");
  EXPECT_EQ(forward[0]["ts"], 1e6);
  EXPECT_EQ(forward[0]["dur"], 5e5);
  EXPECT_EQ(forward[0]["args"], (json{{"update", 7}, {"chunk", 0}, {"micro-batch", 3}}));
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0]["ts"], 1.5e6);
  EXPECT_EQ(idle[0]["dur"], 5e5);
  ASSERT_EQ(reduced.size(), 1u);
  EXPECT_EQ(reduced[0]["tid"], 1);
  EXPECT_EQ(named(trace, "process_name", 0).at(0)["args"]["name"], "rank 0");
}

class TraceProgram : public ProgramTest {};

TEST_F(TraceProgram, APlainRunsProcesses) {
  make_cifar(in("cifar"));
  go("-n 2 " + on_vit + "--data cifar --batch 8 --accumulate 2 --steps 2 --trace t.json --out run");
  const json trace = json::parse(contents(in("t.json")));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(named(trace, "forward", rank).size(), 4u);
    EXPECT_EQ(named(trace, "backward", rank).size(), 4u);
    EXPECT_EQ(named(trace, "update", rank).size(), 2u);
    EXPECT_GE(named(trace, "all-reduce", rank).size(), 2u);
    EXPECT_GE(named(trace, "evaluation", rank).size(), 1u);
    EXPECT_EQ(named(trace, "exchange", rank).size(), 0u);
  }
  double last = 0;  // spans of a rank follow each other
  for (const json& event : trace["traceEvents"]) {
    if (event["pid"] != 0 || event["tid"] != 0 || event["ph"] != "X" || event["name"] == "idle")
      continue;
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"].get<double>() + event["dur"].get<double>() - .002;
  }
  EXPECT_GT(last, 0);
}

TEST_F(TraceProgram, AFileThatCantBeIsRefused) {
  const Finished end = refuse(on_vit + "--data synthetic --steps 1 --trace nowhere/t.json");
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors, "--trace nowhere/t.json: there is no folder nowhere\n");
  const Finished folder = refuse(on_vit + "--data synthetic --steps 1 --trace .");
  EXPECT_EQ(folder.code, 2);
  EXPECT_EQ(folder.errors, "--trace . is not a file; name another\n");
}

}  // namespace
}  // namespace bv::test
