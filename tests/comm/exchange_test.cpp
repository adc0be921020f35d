// Messages and groups through shared memory, and mistakes in them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "kernels/cpu/stream.h"
#include "tests/comm/shared_memory_ranks.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

// The smaller messages of these tests fit into a mailbox.
constexpr size_t small = 1 << 16, large = 1 << 20;

void exchange(Communicator& peers, std::vector<char>& data, int peer, bool send,
              Stream stream = nullptr) {
  peers.exchange(std::vector{Transfer{data.data(), data.size(), peer, send}}, stream);
}

TEST(Exchange, ASmallSendDoesntWaitForItsReceiver) {
  Ranks ranks = start_ranks(2, 4096, hang, [](Communicator& peers) {
    std::vector<char> data(small, 'x');
    if (peers.rank() == 0) exchange(peers, data, 1, true);
    peers.barrier();
    data.assign(small, ' ');
    if (peers.rank() == 1) exchange(peers, data, 0, false);
    return peers.rank() == 0 || data == std::vector<char>(small, 'x') ? 0 : 1;
  });
  expect_all_end_well(ranks);
}

TEST(Exchange, WhatWasSentArrivesThoughItsSenderHasLeft) {
  const Gate has_left;
  Ranks ranks = start_ranks(2, 4096, hang, [&](Communicator& peers) {
    std::vector<char> data(small, 'x');
    if (peers.rank() == 0) {
      exchange(peers, data, 1, true);
      return 0;
    }
    has_left.wait();
    data.assign(small, ' ');
    exchange(peers, data, 0, false);
    return data.back() == 'x' ? 0 : 1;
  });
  EXPECT_EQ(ranks[0]->wait().code, 0);
  has_left.open();
  EXPECT_EQ(ranks[1]->wait().code, 0);
}

TEST(Exchange, NoticesAPeerThatDied) {
  for (const bool send : {true, false}) {
    Ranks ranks = start_ranks(3, 4096, hang, [=](Communicator& peers) {
      std::vector<char> data(large);
      if (peers.rank() == 2) return 0;
      if (peers.rank() == 1) {
        data.resize(1000);
        exchange(peers, data, 0, !send);
        kill(getpid(), SIGKILL);
      }
      std::vector<char> first(1000);
      exchange(peers, first, 1, send);
      exchange(peers, data, 1, send);
      return 0;
    });
    expect_failure(*ranks[0], "rank 0: rank 1 has died\n");
  }
}

TEST(Exchange, NoticesAPeerThatDoesntCome) {
  Ranks ranks = start_ranks(2, 4096, 0.5, [](Communicator& peers) {
    std::vector<char> data(10);
    if (peers.rank() == 0) exchange(peers, data, 1, false);
    while (true) pause();
    return 0;
  });
  expect_failure(*ranks[0], "rank 0: rank 1 has not answered for 0.5 s (--timeout)\n");
}

TEST(Exchange, NoticesAPeerOfAGroupByItsRankInTheRun) {
  Ranks ranks = start_ranks(4, 4096, hang, [](Communicator& world) {
    const auto peers = world.group(std::vector{world.rank() / 2 * 2, world.rank() / 2 * 2 + 1});
    if (world.rank() == 3) kill(getpid(), SIGKILL);
    if (world.rank() == 2) peers->barrier();
    return 0;
  });
  expect_failure(*ranks[2], "rank 2: rank 3 has died\n");
}

TEST(Exchange, RefusesAMessageOfAnotherSize) {
  Ranks ranks = start_ranks(2, 4096, hang, [](Communicator& peers) {
    std::vector<char> data(peers.rank() == 0 ? 40 : 44);
    const std::string said = error_of<std::exception>(
        [&] { exchange(peers, data, 1 - peers.rank(), peers.rank() == 0); });
    const std::string expected =
        peers.rank() == 0 ? "no error"
                          : "rank 0 sent 40 bytes instead of 44; start all ranks with the same "
                            "program and options";
    peers.barrier();
    return said == expected ? 0 : 1;
  });
  expect_all_end_well(ranks);
}

TEST(Exchange, RefusesGroupsThatDontFitTogether) {
  Ranks ranks = start_ranks(3, 4096, hang, [](Communicator& world) {
    const auto refusal = [&](const std::vector<int>& own, const std::vector<int>& others) {
      return error_of<std::exception>([&] { world.group(world.rank() == 1 ? own : others); });
    };
    const std::string differs = "group: rank 0 lists other ranks than they do";
    if (refusal({1}, {0, 1, 2}) != differs) return 1;
    if (refusal({0, 1, 2}, {0, 2, 1}) != differs) return 2;
    if (refusal({0, 1, 3}, {0, 1, 3}) != differs) return 3;
    if (refusal({0, 1, 1}, {0, 1, 1}) != differs) return 4;
    if (refusal({-1, 1, 2}, {0, 1, 2}) != differs) return 5;
    if (refusal({0, 2}, {0, 2}) != "group: rank 1 doesn't name itself") return 6;
    return world.all_reduce_scalar(1) == 3 ? 0 : 7;  // still works
  });
  expect_all_end_well(ranks);
}

// While a group's collective waits on its own stream, collectives of all ranks continue.
TEST(Exchange, AGroupOnItsOwnStreamHoldsUpNobody) {
  Ranks ranks = start_ranks(2, 4096, hang, [](Communicator& world) {
    const auto group = world.group(std::vector{0, 1});
    CpuStream stream;
    float sum = 1;
    if (world.rank() == 0) group->all_reduce(&sum, 1, stream.handle());
    for (int step = 0; step < 3; ++step) world.barrier();
    if (world.rank() == 1) group->all_reduce(&sum, 1, stream.handle());
    synchronize_stream(stream.handle());
    group->barrier();  // waits for the stream
    return sum == 2 ? 0 : 1;
  });
  expect_all_end_well(ranks);
}

}  // namespace
}  // namespace bv::test
