#include "comm/connect/host_comm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/local/peer_watch.h"
#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "engine/setup/same_options.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

// Runs three ranks, each of which expects the same message.
template <class Change>
void expect_on_every_rank(const std::string& message, Change change) {
  const SharedRegion region = SharedRegion::create(3);
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      const auto hosts = make_shared_memory_communicator(
          {.rank = rank, .size = 3, .fd = region.fd(), .bucket_bytes = 4096, .timeout = 20});
      Options options;
      StartFacts facts{.resumed_step = 5, .data = 7};
      change(rank, options, facts);
      const std::string said = error_of([&] { require_same_options(*hosts, options, facts); });
      hosts->barrier();
      return said == message ? 0 : 1;
    }));
  expect_all_end_well(ranks);
}

// Ends the process with the culprit in the exit code.
class ToldEnd final : public RunWatch {
 public:
  std::string name(int rank) const override { return name_of(nullptr, rank); }
  std::string look(PeerTimeout&, int) override { return ""; }
  [[noreturn]] void end(const std::string& why, int culprit) override {
    _exit(why == "rank 2 has not answered for 0.3 s (--timeout)" ? 50 + culprit : 1);
  }
};

// A device's collective doesn't return then.
TEST(PeerWatch, TellsOtherMachinesWhichRankHangs) {
  const SharedRegion region = SharedRegion::create(3);
  Child rank0([&] {
    SharedRegion own = SharedRegion::open(dup(region.fd()));
    own.rank(1).heartbeat = monotonic_ms() + 3600000;
    ToldEnd run;
    PeerWatch watch(own, {.rank = 0, .size = 3, .timeout = 0.3, .supervised = false, .run = &run},
                    [] { return std::string(); });
    watch.wait_begins();
    while (true) pause_ms(1000);
    return 0;
  });
  EXPECT_EQ(rank0.wait().code, 52);
}

// Each rank may be on a separate machine, where the others' output isn't visible.
TEST(HostComm, DifferentOptionsAreNamedOnEveryRank) {
  expect_on_every_rank("no error", [](int, Options&, StartFacts&) {});
  const std::string advice = "; start all with the same options";
  expect_on_every_rank(
      "rank 2 was started with \"lr\": 0.5, rank 0 with \"lr\": 0.001" + advice,
      [](int rank, Options& options, StartFacts&) { options.lr = rank == 2 ? 0.5 : 0.001; });
  expect_on_every_rank(
      "rank 1 was started with \"seed\": 1, rank 0 with \"seed\": 0" + advice,
      [](int rank, Options& options, StartFacts&) { options.seed = static_cast<uint64_t>(rank); });
  expect_on_every_rank(
      "rank 1 was started with \"resumed after step\": 6, rank 0 with \"resumed "
      "after step\": 5" +
          advice,
      [](int rank, Options&, StartFacts& facts) { facts.resumed_step += rank == 1; });
  expect_on_every_rank(
      "rank 2 was started with \"fingerprint of the data\": 8, rank 0 with \"fingerprint of the "
      "data\": 7" +
          advice,
      [](int rank, Options&, StartFacts& facts) { facts.data += rank == 2; });
}

}  // namespace
}  // namespace bv::test
