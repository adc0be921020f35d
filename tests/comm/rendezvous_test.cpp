// Strangers of all kinds, and ranks with another job, version or secret, connect to the port of the
// rendezvous. The run must start nevertheless, or end in time with a line that gives the reason.
#include "comm/connect/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "comm/connect/handshake.h"
#include "comm/connect/host_comm.h"
#include "tests/comm/network.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

World world_at(int port, int rank, int size = 2, const std::string& secret = "") {
  return {.rank = rank,
          .size = size,
          .local_size = 1,
          .master = "127.0.0.1:" + std::to_string(port),
          .host = "127.0.0.1",
          .port = port,
          .secret = secret,
          .variables = "RANK, WORLD_SIZE"};
}

std::unique_ptr<Child> start(const World& world, double timeout = hang) {
  return std::make_unique<Child>([=] {
    World own = world;
    return connect_hosts(own, 4096, timeout)->all_reduce_scalar(1) == world.size ? 0 : 1;
  });
}

// A connection to the run's port, made once rank 0 listens there.
Socket stranger_at(int port) {
  const sockaddr_in address = loopback(port + 1);
  Socket made;
  wait_until([&] {
    made = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  });
  return made;
}

void say(const Socket& to, const void* data, size_t bytes) {
  send(to.fd(), data, bytes, MSG_NOSIGNAL);
}

// Seconds; a Handshake that arrives byte by byte takes about 115.
constexpr double in_time = 60;

// The ranks must meet in time although `disturb` has the port to itself first. If they waited for
// the stranger, they would not.
template <class Disturb>
void expect_to_meet(Disturb disturb, int size = 2) {
  const int port = free_port();
  Ranks ranks;
  ranks.push_back(start(world_at(port, 0, size), in_time));
  [[maybe_unused]] const auto strangers = disturb(port);
  for (int rank = 1; rank < size; ++rank)
    ranks.push_back(start(world_at(port, rank, size), in_time));
  expect_all_end_well(ranks);
}

TEST(Rendezvous, StartsAlthoughStrangersStopInTheMiddleOfAHello) {
  for (const size_t bytes : {size_t{1}, size_t{15}, sizeof(Handshake) - 1}) {
    expect_to_meet([&](int port) {
      Socket made = stranger_at(port);
      const Handshake handshake = handshake_of(world_at(port, 1));
      say(made, &handshake, bytes);
      return made;
    });
  }
}

TEST(Rendezvous, StartsAlthoughAStrangerDrips) {
  std::unique_ptr<Child> drip;
  expect_to_meet([&](int port) {
    drip = std::make_unique<Child>([port] {
      const Socket made = stranger_at(port);
      const Handshake handshake = handshake_of(world_at(port, 1));
      for (size_t i = 0; i < sizeof handshake; ++i, usleep(900000))
        say(made, reinterpret_cast<const char*>(&handshake) + i, 1);
      return 0;
    });
    return 0;
  });
}

TEST(Rendezvous, StartsAlthoughFiveHundredAreSilent) {
  expect_to_meet([](int port) {
    std::vector<Socket> silent;
    for (int i = 0; i < 500; ++i) silent.push_back(stranger_at(port));
    return silent;
  });
}

TEST(Rendezvous, StartsAlthoughARankCameAndDied) {
  expect_to_meet(
      [](int port) {
        const World world = world_at(port, 1, 3);
        const Socket made = stranger_at(port);
        const Handshake handshake = handshake_of(world);
        say(made, &handshake, sizeof handshake);
        Challenge challenge;
        EXPECT_EQ(recv(made.fd(), &challenge, sizeof challenge, MSG_WAITALL),
                  ssize_t(sizeof challenge));
        const Proof proof{};
        say(made, &proof, sizeof proof);
        usleep(100000);
        return 0;
      },
      3);
}

TEST(Rendezvous, GivesUpInTimeAmongStrangers) {
  const int port = free_port();
  const auto rank0 = start(world_at(port, 0), 2);
  const Socket one = stranger_at(port);
  say(one, "x", 1);
  const Ending ending = rank0->wait();
  EXPECT_TRUE(has(ending.errors, "rank 0 waited 2 s for rank 1 (RANK, WORLD_SIZE in the"));
}

// Another server that sends first.
TEST(Rendezvous, AnotherServersBannerIsNoWelcome) {
  const int port = free_port();
  const Socket server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port + 1);
  ASSERT_EQ(bind(server.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(server.fd(), 8), 0);
  const auto rank1 = start(world_at(port, 1), 5);
  const Socket client(accept(server.fd(), nullptr, nullptr));
  const std::string banner = "SSH-2.0-OpenSSH_9.2\r\n";
  say(client, banner.data(), banner.size());
  const Ending ending = rank1->wait();
  EXPECT_TRUE(has(ending.errors, "another program answers (\"SSH-2.0-Open"));
  EXPECT_TRUE(has(ending.errors, "), not rank 0; give the run another port"));
}

TEST(Rendezvous, ASecretIsProvedByBothSides) {
  if (!BAREVISION_SODIUM) GTEST_SKIP() << "built without libsodium";
  const int port = free_port();
  Ranks ranks;
  for (const int rank : {0, 1, 2}) ranks.push_back(start(world_at(port, rank, 3, "open sesame")));
  expect_all_end_well(ranks);
}

TEST(Rendezvous, WithoutTheSecretNobodyComesIn) {
  if (!BAREVISION_SODIUM) GTEST_SKIP() << "built without libsodium";
  struct Case {
    const char *rank0, *rank1, *told, *noted;
  };
  const Case cases[] = {
      {"a", "b", "rank 1: rank 0 has another BAREVISION_SECRET; set the same for all ranks",
       "for rank 1 (RANK"},
      {"a", "", "BAREVISION_SECRET is set for rank 0, not for rank 1; set the same",
       "was refused: BAREVISION_SECRET is set on one side only"},
      {"", "b", "BAREVISION_SECRET is set for rank 1, not for rank 0; set the same",
       "was refused: BAREVISION_SECRET is set on one side only"}};
  // Concurrently, since each rank 0 waits until its timeout.
  Ranks ranks;
  for (const Case& c : cases) {
    const int port = free_port();
    ranks.push_back(start(world_at(port, 0, 2, c.rank0), 2));
    ranks.push_back(start(world_at(port, 1, 2, c.rank1)));
  }
  for (size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_TRUE(has(ranks[2 * i + 1]->wait().errors, cases[i].told));
    EXPECT_TRUE(has(ranks[2 * i]->wait().errors, cases[i].noted));
  }
}

// Someone who has overheard another handshake can't reuse its proof.
TEST(Rendezvous, AProofHoldsForOneGreetingAlone) {
  if (!BAREVISION_SODIUM) GTEST_SKIP() << "built without libsodium";
  const World world = world_at(1, 1, 2, "open sesame");
  const Handshake handshake = handshake_of(world);
  const Nonce one = challenge_of(world, handshake).preamble.nonce,
              other = challenge_of(world, handshake).preamble.nonce;
  EXPECT_NE(one, other);
  EXPECT_FALSE(equal(proof_of_peer(world, handshake, one), proof_of_peer(world, handshake, other)));
  EXPECT_FALSE(equal(proof_of_peer(world, handshake, one), proof_of_rank0(world, handshake, one)));
  EXPECT_FALSE(
      equal(proof_of_peer(world, handshake, one), proof_of_peer(world, handshake_of(world), one)));
  EXPECT_TRUE(equal(proof_of_peer(world, handshake, one), proof_of_peer(world, handshake, one)));
  // Computed with Python's hmac module: the key is the secret; the message is '0', `fixed` and a
  // nonce of zeros.
  Handshake fixed{.rank = 1, .size = 2};
  fixed.preamble.has_secret = 1;
  const Digest digest = proof_of_rank0(world, fixed, Nonce{});
  std::string hex;
  for (const std::byte b : digest) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", unsigned(b));
    hex += text;
  }
  EXPECT_EQ(hex, "f9e1ec45d3639ad87cc1b572733bc43bd6851ef7728945e853da472bd700b0de");
}

// The timeout cuts the last call short; enough ranks have connected by then.
TEST(Rendezvous, AQuorumMeetsAtTheEnd) {
  const int port = free_port();
  Ranks ranks;
  for (const int rank : {0, 2})
    ranks.push_back(std::make_unique<Child>([=] {
      const Quorum two{.expected = {1, 2}, .least = 2, .last_call = 2 * hang};
      const double timeout = rank == 0 ? 3 : hang;
      const auto sockets = meet_over_network(world_at(port, rank, 3), timeout, &two);
      return rank > 0 || (!sockets[1] && sockets[2]) ? 0 : 1;
    }));
  expect_all_end_well(ranks);
}

TEST(Rendezvous, AnotherVersionIsNamed) {
  const int port = free_port();
  const auto rank0 = start(world_at(port, 0), 2);
  const Socket old = stranger_at(port);
  Handshake handshake = handshake_of(world_at(port, 1));
  handshake.preamble.version = 2;
  say(old, &handshake, sizeof(Preamble) + 16);  // an old version's was shorter
  Challenge challenge;
  EXPECT_EQ(recv(old.fd(), &challenge, sizeof challenge, MSG_WAITALL), ssize_t(sizeof challenge));
  EXPECT_EQ(challenge.preamble.version, Preamble::our_version);
  EXPECT_TRUE(has(rank0->wait().errors, "was refused: it runs another version of this program"));
}

}  // namespace
}  // namespace bv::test
