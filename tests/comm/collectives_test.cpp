// Collectives through shared memory between real processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/stream.h"
#include "tests/comm/shared_memory_ranks.h"

namespace bv::test {
namespace {

// Values of many magnitudes, whose sum in fp32 depends on the order.
template <class T>
T value(int rank, size_t i) {
  const uint32_t hash = (uint32_t(i) * 3 + uint32_t(rank) + 1) * 2654435761u;
  return T(int(hash >> 8) - (1 << 23)) * T(1u << (hash & 31)) / T(3);
}

template <class T>
bool sums_in_rank_order(Communicator& peers, size_t count) {
  std::vector<T> data(count + 2, T(-7));  // a sentinel at each end
  for (size_t i = 0; i < count; ++i) data[i + 1] = value<T>(peers.rank(), i);
  peers.all_reduce(data.data() + 1, count, nullptr);
  for (size_t i = 0; i < count; ++i) {
    T expected = value<T>(0, i);
    for (int r = 1; r < peers.size(); ++r) expected += value<T>(r, i);
    if (!(data[i + 1] == expected)) return false;
  }
  return data[0] == T(-7) && data[count + 1] == T(-7);
}

TEST(Collectives, SumInTheOrderOfTheRanks) {
  for (int size = 1; size <= 4; ++size) {
    Ranks ranks = start_ranks(size, 4096 + 100, hang, [](Communicator& peers) {
      const std::vector<size_t> counts = {0,    1,    2,    7,    511,  512,   513,  1023,
                                          1024, 1025, 2047, 5000, 8192, 40000, 1031, 12289};
      for (size_t count : counts) {
        if (!sums_in_rank_order<float>(peers, count)) return 1;
        if (!sums_in_rank_order<double>(peers, count)) return 2;
      }
      return 0;
    });
    expect_all_end_well(ranks);
  }
}

bool gathers_rows(Communicator& peers, size_t count) {
  const auto size = size_t(peers.size());
  std::vector<float> data(size * count + 1, -7);
  for (size_t i = 0; i < count; ++i)
    data[size_t(peers.rank()) * count + i] = value<float>(peers.rank(), i);
  peers.all_gather(data.data(), count, nullptr);
  for (size_t r = 0; r < size; ++r)
    for (size_t i = 0; i < count; ++i)
      if (data[r * count + i] != value<float>(int(r), i)) return false;
  return data.back() == -7;
}

TEST(Collectives, GatherTheRowsOfAllRanks) {
  for (int size = 1; size <= 4; ++size) {
    Ranks ranks = start_ranks(size, 4096 + 100, hang, [](Communicator& peers) {
      for (const size_t count : {0, 1, 2, 7, 511, 1024, 1025, 2048, 5000, 12289})
        if (!gathers_rows(peers, count)) return 1;
      return 0;
    });
    expect_all_end_well(ranks);
  }
}

// Runs all kinds of collectives in random order, with the ranks out of step, to reveal a buffer
// that is reused too early.
TEST(Collectives, KindsMayFollowEachOther) {
  Ranks ranks = start_ranks(3, 4096, hang, [](Communicator& peers) {
    uint32_t random = 1 + peers.rank(), kinds = 7;
    for (int step = 0; step < 400; ++step) {
      random = random * 1664525 + 1013904223;
      kinds = kinds * 1664525 + 1013904223;  // the same on all ranks
      if (random >> 30 == 0) usleep(random >> 22 & 255);
      const size_t count = (kinds >> 8) % 6000;
      if (kinds >> 31) {
        if (!sums_in_rank_order<float>(peers, kinds >> 29 & 1 ? count : count % 64)) return 1;
      } else if (kinds >> 29 & 1) {
        if (!gathers_rows(peers, count)) return 3;
      } else {
        const int root = (kinds >> 5) % 3;
        std::vector<char> data(count, char(peers.rank() == root ? step : -1));
        peers.broadcast(data.data(), count, root, nullptr);
        for (char c : data)
          if (c != char(step)) return 2;
      }
    }
    peers.barrier();
    return 0;
  });
  expect_all_end_well(ranks);
}

TEST(Collectives, RunOnAStreamInTheOrderOfTheCalls) {
  Ranks ranks = start_ranks(2, 1 << 16, hang, [](Communicator& peers) {
    CpuStream stream;
    for (int step = 0; step < 50; ++step) {
      std::vector<float> data(30000, 1.0f + float(peers.rank()));
      float one = 1;
      peers.all_reduce(data.data(), data.size(), stream.handle());
      peers.all_reduce(&one, 1, nullptr);  // on this thread, after the stream's work
      if (data[29999] != 3 || one != 2) return 1;
      peers.all_reduce(&one, 1, stream.handle());
      synchronize_stream(stream.handle());
      if (one != 4) return 2;
    }
    peers.barrier();  // waits for the stream, which is destroyed before the communicator
    return 0;
  });
  expect_all_end_well(ranks);
}

TEST(Collectives, NoticeAPeerThatDied) {
  Ranks ranks = start_ranks(3, 4096, hang, [](Communicator& peers) {
    for (int step = 0;; ++step) {
      if (peers.rank() == 2 && step == 20) kill(getpid(), SIGKILL);
      peers.barrier();
    }
    return 0;
  });
  std::string said;
  for (int rank : {0, 1}) {
    const Ending ending = ranks[rank]->wait();
    EXPECT_EQ(ending.code, 1);
    said += ending.errors;
  }
  EXPECT_TRUE(said == "rank 0: rank 2 has died\n" || said == "rank 1: rank 2 has died\n") << said;
}

TEST(Collectives, NoticeAPeerThatLeft) {
  Ranks ranks = start_ranks(2, 4096, hang, [](Communicator& peers) {
    peers.barrier();
    if (peers.rank() == 0) peers.barrier();
    return 0;
  });
  expect_failure(*ranks[0], "rank 0: rank 1 has left the run\n");
}

// The control block tells the launcher which rank is late, though that rank still has a heartbeat.
TEST(Collectives, NoticeAPeerThatNeverComes) {
  SharedRegion region = SharedRegion::create(2);
  Ranks ranks = start_ranks(region, 2, 4096, 0.5, [](Communicator& peers) {
    while (peers.rank() == 1) pause();
    peers.barrier();
    return 0;
  });
  expect_failure(*ranks[0], "rank 0: rank 1 has not answered for 0.5 s (--timeout)\n");
  EXPECT_EQ(region.control().culprit, 1 + 1);
}

// A save may take longer than the timeout.
TEST(Collectives, WaitForAPeerThatIsBusy) {
  const Gate is_busy;
  Ranks ranks = start_ranks(2, 4096, 0.3, [&](Communicator& peers) {
    if (peers.rank() == 1) {
      peers.busy(Busy::saving);
      is_busy.open();
      usleep(900000);
    }
    is_busy.wait();
    peers.barrier();
    return 0;
  });
  expect_all_end_well(ranks);
}

// A rank stopped during a save: without a heartbeat it counts as a rank that doesn't answer.
TEST(Collectives, NoticeABusyPeerThatIsStopped) {
  const Gate is_busy;
  Ranks ranks = start_ranks(2, 4096, 0.5, [&](Communicator& peers) {
    if (peers.rank() == 0) {
      peers.busy(Busy::saving);
      is_busy.open();
      raise(SIGSTOP);
    }
    is_busy.wait();
    peers.barrier();
    return 0;
  });
  expect_failure(*ranks[1], "rank 1: rank 0 has not answered for 0.5 s (--timeout)\n");
  kill(ranks[0]->pid(), SIGKILL);
}

TEST(Collectives, NoticeASaveThatNeverEnds) {
  const Gate is_busy;
  Ranks ranks = start_ranks(2, 4096, 0.1, [&](Communicator& peers) {
    if (peers.rank() == 0) {
      peers.busy(Busy::saving);
      is_busy.open();
      while (true) pause();
    }
    is_busy.wait();
    peers.barrier();
    return 0;
  });
  expect_failure(*ranks[1], "rank 1: rank 0 has been saving for 1 s (10 times --timeout)\n");
}

TEST(Collectives, RefuseOtherOptionsOnOtherRanks) {
  const SharedRegion region = SharedRegion::create(2);
  make_shared_memory_communicator({.rank = 0, .size = 2, .fd = region.fd(), .bucket_bytes = 4096});
  EXPECT_THROW(make_shared_memory_communicator(
                   {.rank = 1, .size = 2, .fd = region.fd(), .bucket_bytes = 8192}),
               std::runtime_error);
  EXPECT_THROW(make_shared_memory_communicator(
                   {.rank = 1, .size = 3, .fd = region.fd(), .bucket_bytes = 4096}),
               std::invalid_argument);
}

}  // namespace
}  // namespace bv::test
