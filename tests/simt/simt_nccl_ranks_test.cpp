// NCCL's stand-in between processes: collectives in flight while other streams run, graphs, bytes,
// and the report on ranks that wait for each other.
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tests/comm/processes.h"
#include "tests/simt/simt_host.h"
#include "tests/temporary_folder.h"

namespace bv::simt_gpu {
namespace {

using test::Child;
using test::Ending;
using test::Ranks;

void ok(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}
using simt_gpu::ok;

constexpr size_t many = 100000;  // elements; more than a chunk or a pipe holds

struct Rank {
  int rank;
  ncclComm_t comm = nullptr;
  cudaStream_t a = SimtHostTest::stream(), b = SimtHostTest::stream();
  float* data = SimtHostTest::device_array(many * sizeof(float));

  void send(int peer, size_t count, cudaStream_t s, ncclComm_t of = nullptr) const {
    ok(ncclSend(data, count, ncclInt8, peer, of ? of : comm, s));
  }
  void receive(int peer, size_t count, cudaStream_t s, ncclComm_t of = nullptr) const {
    ok(ncclRecv(data, count, ncclInt8, peer, of ? of : comm, s));
  }
  void sum(size_t count, cudaStream_t s, ncclComm_t of = nullptr) const {
    ok(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, of ? of : comm, s));
  }
  ncclComm_t split(int color) const {
    ncclComm_t made = nullptr;
    ok(ncclCommSplit(comm, color, rank, &made, nullptr));
    return made;
  }
  void fill(float x) const {
    const std::vector<float> host(many, x);
    ok(cudaMemcpy(data, host.data(), many * sizeof(float), cudaMemcpyHostToDevice));
    ok(cudaDeviceSynchronize());
  }
  std::vector<float> values() const {
    std::vector<float> host(many);
    ok(cudaMemcpy(host.data(), data, many * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
  }
  // Whether all of the first `count` are x.
  bool holds(float x, size_t count = many) const {
    const std::vector<float> host = values();
    return std::all_of(host.begin(), host.begin() + std::ptrdiff_t(count),
                       [=](float y) { return y == x; });
  }
};

class SimtNcclRanks : public SimtHostTest {
 protected:
  // Runs body(rank), which returns an exit code, in a process of each rank.
  template <class Body>
  static Ranks start(int size, unsigned seed, Body body) {
    ncclUniqueId id;
    ok(ncclGetUniqueId(&id));
    Ranks ranks;
    for (int r = 0; r < size; ++r)
      ranks.push_back(std::make_unique<Child>([=] {
        simt::stream_seed = seed;
        Rank rank{r};
        ok(ncclCommInitRank(&rank.comm, size, id, r));
        return body(rank);
      }));
    return ranks;
  }
  // All ranks end soon with an error, and one of them prints why.
  static void expect_said(Ranks ranks, const std::string& line) {
    std::string said;
    for (const auto& rank : ranks) {
      const Ending ending = rank->wait();
      EXPECT_GT(ending.code, 0);
      said += ending.errors;
    }
    EXPECT_EQ(said, line + "\n");
  }
};

int end_of(const Rank& rank) {
  ok(ncclCommDestroy(rank.comm));
  return 0;
}

// ---- In flight ----------------------------------------------------------------------------------
TEST_F(SimtNcclRanks, OtherStreamsRunBesideACollective) {
  auto* const reached = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (const unsigned seed : {0, 1, 5}) {
    *reached = 0;
    Ranks ranks = start(2, seed, [=](const Rank& rank) {
      rank.fill(1);
      if (rank.rank == 0) {
        rank.sum(many, rank.a);
        float* other = device_array();
        ok(cudaMemsetAsync(other, 0, bytes, rank.b));
        synchronize(rank.b);
        *reached = 1;
      } else {
        while (*reached == 0) usleep(1000);  // joins only after rank 0 has waited for stream b
        rank.sum(many, rank.a);
      }
      synchronize(rank.a);
      return rank.holds(2) ? end_of(rank) : 1;
    });
    test::expect_all_end_well(ranks);
  }
  munmap(reached, 4096);
}

// 100,000 floats over a link of 0.4 MB/s: each of two ranks sends 0.4 MB in 1 s.
TEST_F(SimtNcclRanks, ALinkTakesTimeBesideOtherStreams) {
  Ranks ranks = start(2, 0, [=](const Rank& rank) {
    setenv("SIMT_NCCL_LINK", "0.4", 1);
    float* other = device_array();
    bool beside = false;  // stream b was done before the link, at least once in several runs
    for (int time = 0; time < 3; ++time) {
      rank.fill(1);
      const double start = test::seconds_now();
      rank.sum(many, rank.a);
      ok(cudaMemsetAsync(other, 0, bytes, rank.b));
      synchronize(rank.b);
      beside = beside || cudaStreamQuery(rank.a) == cudaErrorNotReady;
      synchronize(rank.a);
      if (const double all = test::seconds_now() - start; all < 1 || !rank.holds(2)) {
        fprintf(stderr, "in all %.3f s\n", all);
        return 1;
      }
    }
    return beside ? end_of(rank) : 2;
  });
  test::expect_all_end_well(ranks);
}

// A peer may need an operation that nobody on this rank waits for.
TEST_F(SimtNcclRanks, UnwantedOperationsRunWhenNothingElseCan) {
  for (const unsigned seed : {0, 1, 5}) {
    Ranks ranks = start(2, seed, [=](const Rank& rank) {
      const ncclComm_t second = rank.split(0);
      rank.fill(float(rank.rank));
      if (rank.rank == 0) {
        rank.send(1, many, rank.b, second);
        rank.receive(1, 1, rank.a);
        synchronize(rank.a);
        synchronize(rank.b);
      } else {
        rank.receive(0, many, rank.a, second);
        rank.send(0, 1, rank.a);
        synchronize(rank.a);
      }
      ok(ncclCommDestroy(second));
      return end_of(rank);
    });
    test::expect_all_end_well(ranks);
  }
}

TEST_F(SimtNcclRanks, CommunicatorsMayBeInAnotherOrderOnEachRank) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    Ranks ranks = start(3, seed, [=](const Rank& rank) {
      const ncclComm_t second = rank.split(0);
      float* const more = device_array(many * sizeof(float));
      rank.fill(1);
      ok(cudaMemcpy(more, rank.data, many * sizeof(float), cudaMemcpyDeviceToDevice));
      ok(cudaDeviceSynchronize());
      const auto sum_more = [&] {
        ok(ncclAllReduce(more, more, many, ncclFloat32, ncclSum, second, rank.b));
      };
      for (int step = 0; step < 4; ++step) {
        if (rank.rank == 1) sum_more();
        rank.sum(many, rank.a);
        if (rank.rank != 1) sum_more();
      }
      synchronize(rank.a);
      synchronize(rank.b);
      if (!rank.holds(81)) return 1;
      ok(cudaMemcpy(rank.data, more, many * sizeof(float), cudaMemcpyDeviceToDevice));
      if (!rank.holds(81)) return 2;
      ok(ncclCommDestroy(second));
      return end_of(rank);
    });
    test::expect_all_end_well(ranks);
  }
}

TEST_F(SimtNcclRanks, AGraphRepeatsItsMessages) {
  for (const unsigned seed : {0, 1, 5}) {
    Ranks ranks = start(2, seed, [=](const Rank& rank) {
      float* const got = device_array(many * sizeof(float));
      ok(cudaStreamBeginCapture(rank.a, cudaStreamCaptureModeThreadLocal));
      ok(ncclGroupStart());
      rank.send(1 - rank.rank, many * sizeof(float), rank.a);
      ok(ncclRecv(got, many * sizeof(float), ncclInt8, 1 - rank.rank, rank.comm, rank.a));
      ok(ncclGroupEnd());
      cudaGraph_t graph = nullptr;
      ok(cudaStreamEndCapture(rank.a, &graph));
      size_t nodes = 0;
      ok(cudaGraphGetNodes(graph, nullptr, &nodes));
      if (nodes != 1) return 1;
      cudaGraphExec_t executable = nullptr;
      ok(cudaGraphInstantiate(&executable, graph));
      for (int i = 1; i <= 3; ++i) {
        rank.fill(float(10 * i + rank.rank));
        ok(cudaGraphLaunch(executable, rank.a));
        synchronize(rank.a);
        ok(cudaMemcpy(rank.data, got, many * sizeof(float), cudaMemcpyDeviceToDevice));
        if (!rank.holds(float(10 * i + 1 - rank.rank))) return 2;
      }
      ok(cudaGraphExecDestroy(executable));
      ok(cudaGraphDestroy(graph));
      return end_of(rank);
    });
    test::expect_all_end_well(ranks);
  }
}

TEST_F(SimtNcclRanks, RanksOfNoColorGetNoCommunicator) {
  Ranks ranks = start(3, 0, [=](const Rank& rank) {
    const ncclComm_t two = rank.split(rank.rank < 2 ? 7 : NCCL_SPLIT_NOCOLOR);
    if (rank.rank == 2) return two ? 1 : end_of(rank);
    rank.fill(1);
    rank.sum(10, nullptr, two);
    synchronize(nullptr);
    if (!rank.holds(2, 10)) return 2;
    ok(ncclCommDestroy(two));
    return end_of(rank);
  });
  test::expect_all_end_well(ranks);
}

// ---- Ranks that wait for each other -------------------------------------------------------------
TEST_F(SimtNcclRanks, ADeadlockByTwoSendsInSwappedOrder) {
  expect_said(start(2, 0,
                    [](const Rank& rank) {
                      const ncclComm_t second = rank.split(0);
                      const ncclComm_t order[] = {rank.comm, second};
                      for (const int i : {0, 1}) {
                        if (rank.rank == 0)
                          rank.send(1, 8, rank.a, order[i]);
                        else
                          rank.receive(0, 8, rank.a, order[1 - i]);
                      }
                      synchronize(rank.a);
                      return 0;
                    }),
              "simt: deadlock: rank 0 waits in ncclSend to rank 1 (operation 1 of communicator 0), "
              "rank 1 waits in ncclRecv from rank 0 (operation 1 of communicator 1)");
}

TEST_F(SimtNcclRanks, ADeadlockByReceivesBeforeTheirSends) {
  for (const unsigned seed : {0, 1, 5})
    expect_said(
        start(3, seed,
              [](const Rank& rank) {
                rank.sum(1, rank.a);
                rank.receive((rank.rank + 2) % 3, 8, rank.a);
                rank.send((rank.rank + 1) % 3, 8, rank.a);
                synchronize(rank.a);
                return 0;
              }),
        "simt: deadlock: rank 0 waits in ncclRecv from rank 2 (operation 2 of communicator 0), "
        "rank 1 waits in ncclRecv from rank 0 (operation 2 of communicator 0), rank 2 waits in "
        "ncclRecv from rank 1 (operation 2 of communicator 0)");
}

TEST_F(SimtNcclRanks, ADeadlockByACollectiveOnOneRankOnly) {
  expect_said(
      start(2, 0,
            [](const Rank& rank) {
              if (rank.rank == 0) rank.sum(10, rank.a);
              synchronize(rank.a);
              rank.send(1 - rank.rank, 8, rank.a);
              synchronize(rank.a);
              return 0;
            }),
      "simt: deadlock: rank 0 waits in ncclAllReduce for rank 1 (operation 1 of communicator 0), "
      "rank 1 waits in ncclSend to rank 0 (operation 1 of communicator 0)");
}

TEST_F(SimtNcclRanks, AWaitForARankThatHasEnded) {
  Ranks ranks = start(2, 0, [](const Rank& rank) {
    if (rank.rank == 0) rank.sum(10, rank.a);
    synchronize(rank.a);
    return 0;
  });
  const Ending ending = ranks[0]->wait();
  EXPECT_EQ(ending.code, 1);
  EXPECT_EQ(ending.errors,
            "simt: deadlock: rank 0 waits in ncclAllReduce for rank 1 (operation 1 of communicator "
            "0), rank 1 has ended\n");
}

TEST_F(SimtNcclRanks, AnExchangeWithARankThatIsKilled) {
  Ranks ranks = start(2, 0, [](const Rank& rank) {
    rank.sum(1, rank.a);
    synchronize(rank.a);
    if (rank.rank == 1) raise(SIGKILL);
    ok(ncclGroupStart());
    rank.send(1, many, rank.a);
    rank.receive(1, many, rank.a);
    ok(ncclGroupEnd());
    synchronize(rank.a);
    return 0;
  });
  const Ending ending = ranks[0]->wait();
  EXPECT_EQ(ending.code, 1);
  EXPECT_EQ(
      ending.errors,
      "simt: deadlock: rank 0 waits in ncclSend to rank 1 (operation 2 of communicator 0) and "
      "in ncclRecv from rank 1 (operation 2 of communicator 0), rank 1 has ended\n");
}

TEST_F(SimtNcclRanks, CollectivesThatDontMatch) {
  Ranks ranks = start(2, 0, [](const Rank& rank) {
    rank.sum(rank.rank == 0 ? 10 : 11, rank.a);
    synchronize(rank.a);
    return 0;
  });
  std::string said;
  for (const auto& rank : ranks) said += rank->wait().errors;
  const std::string one =
                        "simt: rank 0 calls ncclAllReduce<float> of 10 where rank 1 calls "
                        "ncclAllReduce<float> of 11 (operation 1 of communicator 0)\n",
                    other =
                        "simt: rank 1 calls ncclAllReduce<float> of 11 where rank 0 calls "
                        "ncclAllReduce<float> of 10 (operation 1 of communicator 0)\n";
  EXPECT_TRUE(said == one || said == other) << said;
}

TEST_F(SimtNcclRanks, MessagesThatDontMatch) {
  expect_said(start(2, 0,
                    [](const Rank& rank) {
                      if (rank.rank == 0)
                        rank.send(1, 8, rank.a);
                      else
                        rank.receive(0, 9, rank.a);
                      synchronize(rank.a);
                      return 0;
                    }),
              "simt: rank 0 sends 8 bytes where rank 1 receives 9 (message 1 between them in "
              "communicator 0)");
}

// A slow rank isn't a deadlock.
TEST_F(SimtNcclRanks, ARankThatIsLateIsWaitedFor) {
  Ranks ranks = start(2, 0, [](const Rank& rank) {
    rank.fill(1);
    if (rank.rank == 1) usleep(1500000);
    rank.sum(10, rank.a);
    synchronize(rank.a);
    return rank.holds(2, 10) ? end_of(rank) : 1;
  });
  test::expect_all_end_well(ranks);
}

// ---- Bytes --------------------------------------------------------------------------------------
// Counted as in rings: for an all-reduce of S bytes among N ranks, each rank sends 2 S (N - 1) / N.
TEST_F(SimtNcclRanks, CountsWhatEachRankSendsToEach) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/bytes";
  setenv("SIMT_NCCL_BYTES", file.c_str(), 1);
  Ranks ranks = start(4, 0, [](const Rank& rank) {
    const ncclComm_t pair = rank.split(rank.rank % 2);
    rank.fill(1);
    rank.sum(1000, rank.a);
    rank.sum(1000, rank.a, pair);
    ok(ncclReduceScatter(rank.data, rank.data, 10, ncclFloat32, ncclSum, rank.comm, rank.a));
    ok(ncclAllGather(rank.data, rank.data + 40, 10, ncclFloat32, rank.comm, rank.a));
    ok(ncclBroadcast(rank.data, rank.data, 100, ncclInt8, 2, rank.comm, rank.a));
    if (rank.rank == 0) rank.send(3, 77, rank.a);
    if (rank.rank == 3) rank.receive(0, 77, rank.a);
    synchronize(rank.a);
    ok(ncclCommDestroy(pair));
    ok(ncclCommDestroy(rank.comm));
    return simt::nccl_bytes_sent()[(rank.rank + 2) % 4] == 4000 ? 0 : 1;
  });
  unsetenv("SIMT_NCCL_BYTES");
  test::expect_all_end_well(ranks);
  std::map<std::pair<int, int>, size_t> sent;
  std::ifstream lines(file);
  for (int from, to; lines >> from >> to;) lines >> sent[{from, to}];
  const size_t ring = 6000 + 120 + 120;
  const std::map<std::pair<int, int>, size_t> expected = {
      {{0, 1}, ring + 100}, {{1, 2}, ring}, {{2, 3}, ring + 100},
      {{3, 0}, ring + 100}, {{0, 2}, 4000}, {{2, 0}, 4000},
      {{1, 3}, 4000},       {{3, 1}, 4000}, {{0, 3}, 77}};
  EXPECT_EQ(sent, expected);
}

}  // namespace
}  // namespace bv::simt_gpu
