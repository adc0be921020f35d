// The hosts of several machines, simulated by processes that share only a port.
#include "comm/net/tcp_communicator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "comm/connect/host_comm.h"
#include "comm/connect/rendezvous.h"
#include "tests/comm/network.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

World world_of(int rank, int size, int port) {
  World world;
  world.rank = rank;
  world.size = size;
  world.host = "127.0.0.1";
  world.port = port;
  world.master = "127.0.0.1:" + std::to_string(port);
  world.variables = "RANK, WORLD_SIZE";
  world.node = rank;
  world.machine = std::string("machine ") + "abc"[rank];
  return world;
}

// Runs body(communicator) in one process per rank.
template <class Body>
std::unique_ptr<Child> start_rank(int rank, int size, int port, double timeout, Body body) {
  return std::make_unique<Child>([=] {
    World world = world_of(rank, size, port);
    const auto peers = connect_hosts(world, 4096, timeout);
    return body(*peers);
  });
}
template <class Body>
Ranks start_ranks(int size, double timeout, Body body) {
  const int port = free_port();
  Ranks ranks;
  for (int rank = size - 1; rank >= 0; --rank)
    ranks.insert(ranks.begin(), start_rank(rank, size, port, timeout, body));
  return ranks;
}

// Values of many magnitudes, whose sum depends on the order.
double value(int rank, size_t i) { return (rank + 1) * 1e-3 * double(i * i % 1009) + 1e9 * rank; }

TEST(TcpCommunicator, CollectivesFollowEachOtherInAnyOrder) {
  for (const int size : {2, 4}) {
    Ranks ranks = start_ranks(size, hang, [](Communicator& peers) {
      const int n = peers.size(), me = peers.rank();
      for (int step = 0; step < 40; ++step) {
        if ((step + me) % 3 == 0) usleep(2000);
        const size_t count = size_t(step * 97 % 5000);
        std::vector<float> sum(count), rows(count * size_t(n), -1);
        for (size_t i = 0; i < count; ++i) sum[i] = float(value(me, i));
        for (size_t i = 0; i < count; ++i) rows[size_t(me) * count + i] = sum[i];
        peers.all_gather(rows.data(), count, nullptr);
        peers.all_reduce(sum.data(), count, nullptr);
        for (size_t i = 0; i < count; ++i) {
          float want = float(value(0, i));
          for (int r = 1; r < n; ++r) want += float(value(r, i));
          if (sum[i] != want) return 1;
          for (int r = 0; r < n; ++r)
            if (rows[size_t(r) * count + i] != float(value(r, i))) return 2;
        }
        const int root = step % n;
        std::vector<char> text(count + 1, char(me == root ? step : -1));
        peers.broadcast(text.data(), text.size(), root, nullptr);
        for (const char c : text)
          if (c != char(step)) return 3;
        if (peers.all_reduce_scalar(1) != n) return 4;
        peers.barrier();
      }
      return 0;
    });
    expect_all_end_well(ranks);
  }
}

// The sizes differ as if the ranks ran different programs.
TEST(TcpCommunicator, PartsOfDifferentSizesAreRefused) {
  Ranks ranks = start_ranks(2, hang, [](Communicator& peers) {
    std::vector<float> data(size_t(1000 - 500 * peers.rank()));
    peers.all_reduce(data.data(), data.size(), nullptr);
    return 0;
  });
  const Ending first = ranks[0]->wait();
  EXPECT_TRUE(has(first.errors, "rank 1 sent 2000 bytes instead of 4000"));
  EXPECT_EQ(ranks[1]->wait().errors,
            "rank 1: rank 0 (node 0, machine a) has ended before this one\n");
}

TEST(TcpCommunicator, APeerThatDiesEndsAll) {
  Ranks ranks = start_ranks(3, hang, [](Communicator& peers) {
    for (int step = 0;; ++step) {
      if (peers.rank() == 2 && step == 5) kill(getpid(), SIGKILL);
      peers.barrier();
    }
    return 0;
  });
  expect_failure(*ranks[0],
                 "rank 0: rank 2 (node 2, machine c) has died, or its machine can't be reached\n");
  expect_failure(*ranks[1],
                 "rank 1: rank 2 (node 2, machine c) has died, or its machine can't be reached\n");
}

// Rank 0's main thread is busy meanwhile; its communicator's thread forwards messages.
TEST(TcpCommunicator, AHostAtWorkHoldsUpNobodysEnd) {
  Ranks ranks = start_ranks(3, hang, [](Communicator& peers) {
    peers.barrier();
    while (peers.rank() == 0) pause();
    if (peers.rank() == 2) kill(getpid(), SIGKILL);
    peers.barrier();
    return 0;
  });
  const std::string line = "rank 2 (node 2, machine c) has died, or its machine can't be reached\n";
  expect_failure(*ranks[1], "rank 1: " + line);
  EXPECT_FALSE(ranks[0]->has_ended());  // the communicator's thread ends it 2 s later
  expect_failure(*ranks[0], "rank 0: " + line);
}

TEST(TcpCommunicator, RankZeroIsMissedToo) {
  Ranks ranks = start_ranks(2, hang, [](Communicator& peers) {
    peers.barrier();
    if (peers.rank() == 0) kill(getpid(), SIGKILL);
    peers.barrier();
    return 0;
  });
  expect_failure(*ranks[1],
                 "rank 1: rank 0 (node 0, machine a) has died, or its machine can't be reached\n");
}

TEST(TcpCommunicator, APeerThatDoesntAnswerEndsAll) {
  Ranks ranks = start_ranks(3, 1, [](Communicator& peers) {
    for (int step = 0;; ++step) {
      if (peers.rank() == 1 && step == 5) kill(getpid(), SIGSTOP);
      peers.barrier();
    }
    return 0;
  });
  expect_failure(*ranks[0],
                 "rank 0: rank 1 (node 1, machine b) has not answered for 1 s (--timeout)\n");
  expect_failure(*ranks[2],
                 "rank 2: rank 1 (node 1, machine b) has not answered for 1 s (--timeout)\n");
  kill(ranks[1]->pid(), SIGKILL);
}

TEST(TcpCommunicator, WhoIsBusyMayLetTheOthersWait) {
  Ranks ranks = start_ranks(2, 1, [](Communicator& peers) {
    if (peers.rank() == 1) peers.busy(Busy::saving);
    peers.barrier();  // rank 0 has received the report
    if (peers.rank() == 1) usleep(2500000);
    peers.barrier();
    return 0;
  });
  expect_all_end_well(ranks);
}

TEST(TcpCommunicator, WhoIsStoppedInASaveIsNoticed) {
  Ranks ranks = start_ranks(2, 1, [](Communicator& peers) {
    if (peers.rank() == 1) peers.busy(Busy::saving);
    peers.barrier();  // rank 0 has received the report
    if (peers.rank() == 1) raise(SIGSTOP);
    peers.barrier();
    return 0;
  });
  expect_failure(*ranks[0],
                 "rank 0: rank 1 (node 1, machine b) has not answered for 1 s (--timeout)\n");
  kill(ranks[1]->pid(), SIGKILL);
}

// A rank that joins and then sends these words instead of frames.
std::unique_ptr<Child> start_broken_rank(int rank, int size, int port,
                                         const std::vector<uint32_t>& words) {
  return std::make_unique<Child>([=] {
    const auto sockets = meet_over_network(world_of(rank, size, port), hang);
    send(sockets[0].fd(), words.data(), words.size() * sizeof words[0], MSG_NOSIGNAL);
    while (true) pause();
    return 0;
  });
}
int sum_once(Communicator& peers) {
  peers.all_reduce_scalar(1);
  return 0;
}

// A rank that announces a size and then sends nothing doesn't delay other ranks' heartbeats.
TEST(TcpCommunicator, HalfAFrameHoldsUpNobody) {
  const int port = free_port();
  const auto first = start_rank(0, 3, port, 2, sum_once),
             second = start_rank(1, 3, port, 2, sum_once);
  const auto broken = start_broken_rank(2, 3, port, {0, 1000, 0});
  expect_failure(*first, "rank 0: rank 2 has not answered for 2 s (--timeout)\n");
  expect_failure(*second, "rank 1: rank 2 has not answered for 2 s (--timeout)\n");
}

TEST(TcpCommunicator, AFrameLargerThanAnyIsNotReadIntoMemory) {
  const int port = free_port();
  const auto first = start_rank(0, 2, port, hang, sum_once);
  const auto broken = start_broken_rank(1, 2, port, {0, 0xffffffffu});
  expect_failure(*first, "rank 0: rank 1 sent data that is not a message of this program\n");
}

TEST(TcpCommunicator, NamesWhoDoesntCome) {
  const int port = free_port();
  const auto nothing = [](Communicator&) { return 0; };
  Ranks two;
  for (const int rank : {0, 1}) two.push_back(start_rank(rank, 3, port, 2, nothing));
  const Ending first = two[0]->wait(), second = two[1]->wait();
  EXPECT_TRUE(has(first.errors, "rank 0 waited 2 s for rank 2 (RANK, WORLD_SIZE in the"));
  EXPECT_TRUE(has(second.errors, "rank 1: rank 0 waited 2 s for rank 2 (RANK, WORLD_SIZE in the"));
  const Ending alone = start_rank(1, 2, free_port(), 0.3, nothing)->wait();
  EXPECT_TRUE(has(alone.errors, "rank 1 waited 0.3 s for rank 0 at 127.0.0.1:"));
}

// A stranger at the port and a rank of another job are refused.
TEST(TcpCommunicator, TurnsAwayWhoDoesntBelong) {
  const int port = free_port();
  const auto meets = [](Communicator& peers) { return peers.all_reduce_scalar(1) == 2 ? 0 : 1; };
  Ranks ranks;
  ranks.push_back(start_rank(0, 2, port, hang, meets));
  ASSERT_TRUE(wait_until([=] { return say_to_port(port + 1, "GET / HTTP/1.1\r\n\r\n"); }));
  const Ending other = Child([=] {
                         World world = world_of(1, 2, port);
                         world.master = "another job";
                         connect_hosts(world, 4096, 2);
                         return 0;
                       }).wait();
  EXPECT_TRUE(has(other.errors, "where another job's processes meet"));
  ranks.push_back(start_rank(1, 2, port, hang, meets));
  expect_all_end_well(ranks);
}

TEST(TcpCommunicator, NeedsTheMachineOfRankZero) {
  World world = world_of(1, 2, 1);
  world.host.clear();
  EXPECT_EQ(
      error_of([&] { connect_hosts(world, 4096, 1); }),
      "the processes are on several machines (1 of 2 here): set MASTER_ADDR to the machine of "
      "rank 0, the same for all ranks");
  world.host = "no such host";
  EXPECT_THROW(connect_hosts(world, 4096, 1), UserError);
}

}  // namespace
}  // namespace bv::test
