// The data connections between machines: rings and the 2-D all-reduce, between processes connected
// by sockets. The Mesh counts the bytes sent.
#include "comm/connect/machines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "comm/net/ring_communicator.h"
#include "comm/two_level_communicator.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

// A watch for a run that never fails.
struct Calm final : RunWatch {
  std::string name(int rank) const override { return name_of(nullptr, rank); }
  std::string look(PeerTimeout&, int) override { return ""; }
  [[noreturn]] void end(const std::string& why, int) override {
    std::fprintf(stderr, "%s\n", why.c_str());
    _exit(1);
  }
};

// A hosts' communicator that does nothing: the rings need one, but don't use it here.
struct NoHosts final : Communicator {
  using Communicator::Communicator;
  void all_reduce(float*, size_t, Stream) override {}
  void all_reduce(double*, size_t, Stream) override {}
  void all_gather(float*, size_t, Stream) override {}
  void broadcast(void*, size_t, int, Stream) override {}
  void reduce_scatter(float*, size_t, Stream) override {}
  void exchange(std::span<const Transfer>, Stream) override {}
  std::unique_ptr<Communicator> group(std::span<const int>) override { return nullptr; }
  void barrier() override {}
  void busy(Busy) override {}
};

struct Shape {
  int nodes, local;
  int size() const { return nodes * local; }
};

// A rank with its all-reduce algorithms.
struct Machine {
  std::shared_ptr<Mesh> mesh;
  std::unique_ptr<Communicator> flat, two_level;  // the latter owns its own ring
};

// Runs body(machine) in one process per rank.
template <class Body>
void on_all(Shape shape, Body body) {
  const int size = shape.size();
  const auto count = static_cast<size_t>(size);
  std::vector<std::vector<Socket>> ends(count);
  for (auto& row : ends) row.resize(count);
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < a; ++b) {
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
      ends[size_t(a)][size_t(b)] = Socket(pair[0]);
      ends[size_t(b)][size_t(a)] = Socket(pair[1]);
    }
  std::vector<Socket> regions;  // their descriptors, by node
  for (int n = 0; n < shape.nodes; ++n)
    regions.emplace_back(dup(SharedRegion::create(shape.local).fd()));
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      Calm calm;
      std::vector<Socket> own = std::move(ends[size_t(rank)]);
      ends.clear();
      Machine m{.mesh = std::make_shared<Mesh>(rank, std::move(own), calm, 20)};
      const auto hosts = [&] { return std::make_unique<NoHosts>(rank, size); };
      m.flat = make_ring_communicator(m.mesh, hosts());
      auto whole = make_ring_communicator(m.mesh, hosts());
      const int node = rank / shape.local, place = rank % shape.local;
      std::vector<int> across;
      for (int n = 0; n < shape.nodes; ++n) across.push_back(n * shape.local + place);
      auto group = whole->group(across);
      auto local = make_shared_memory_communicator({.rank = place,
                                                    .size = shape.local,
                                                    .fd = regions[size_t(node)].fd(),
                                                    .bucket_bytes = 4096,
                                                    .timeout = 20});
      m.two_level = make_two_level_communicator(
          std::move(whole), shape.local > 1 ? std::move(local) : nullptr, std::move(group));
      return body(m);
    }));
  expect_all_end_well(ranks);
}

const Shape shapes[] = {{2, 1}, {3, 1}, {2, 2}, {3, 2}, {2, 3}};
constexpr size_t counts[] = {0, 1, 2, 5, 1023, 1024, 1025, 4099, 100003};

// Values of many magnitudes, so that a sum depends on its order.
float value(int rank, size_t i) {
  const auto hash = uint32_t(i * 31 + size_t(rank) + 1) * 2654435761u;
  return std::ldexp(float(int(hash >> 8) - (1 << 23)), int(hash % 19));
}

bool equal_on_all(Communicator& ranks, const std::vector<float>& data) {
  std::vector<float> all(data.size() * size_t(ranks.size()));
  std::copy(data.begin(), data.end(), all.begin() + ptrdiff_t(data.size()) * ranks.rank());
  ranks.all_gather(all.data(), data.size(), nullptr);
  for (int r = 0; r < ranks.size(); ++r)
    if (!data.empty() && std::memcmp(all.data() + data.size() * size_t(r), data.data(),
                                     data.size() * sizeof(float)) != 0)
      return false;
  return true;
}

// Sums of small integers must be exact; other sums must be close and have equal bits on all ranks.
int adds_up(Communicator& ranks) {
  for (const size_t count : counts) {
    std::vector<float> integers(count), data(count);
    std::vector<double> doubles(count);
    for (size_t i = 0; i < count; ++i) {
      integers[i] = float((i + size_t(ranks.rank())) % 17);
      doubles[i] = data[i] = value(ranks.rank(), i);
    }
    ranks.all_reduce(integers.data(), count, nullptr);
    ranks.all_reduce(data.data(), count, nullptr);
    ranks.all_reduce(doubles.data(), count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      float integer = 0;
      double sum = 0, size = 0;
      for (int r = 0; r < ranks.size(); ++r) {
        integer += float((i + size_t(r)) % 17);
        sum += value(r, i);
        size += std::abs(value(r, i));
      }
      if (integers[i] != integer) return 1;
      if (!(std::abs(data[i] - sum) <= 1e-6 * size) || doubles[i] != sum) return 2;
    }
    if (!equal_on_all(ranks, data)) return 3;
  }
  return 0;
}

TEST(Machines, AFlatRingAddsUp) {
  for (const Shape shape : shapes) on_all(shape, [](Machine& m) { return adds_up(*m.flat); });
}
TEST(Machines, TwoLevelsAddUp) {
  for (const Shape shape : shapes) on_all(shape, [](Machine& m) { return adds_up(*m.two_level); });
}

TEST(Machines, TwoRanksGiveTheBitsOfAPlainSum) {
  on_all({2, 1}, [](Machine& m) {
    for (Communicator* way : {m.flat.get(), m.two_level.get()}) {
      std::vector<float> data(5000);
      for (size_t i = 0; i < data.size(); ++i) data[i] = value(way->rank(), i);
      way->all_reduce(data.data(), data.size(), nullptr);
      for (size_t i = 0; i < data.size(); ++i)
        if (data[i] != value(0, i) + value(1, i)) return 1;
    }
    return 0;
  });
}

// Bytes that this rank has sent to other nodes and within its own node.
struct Sent {
  uint64_t outside = 0, inside = 0;
};
Sent sent(const Mesh& mesh, Shape shape) {
  Sent sum;
  for (int peer = 0; peer < mesh.size(); ++peer)
    (peer / shape.local == mesh.rank() / shape.local ? sum.inside : sum.outside) +=
        mesh.bytes_sent(peer);
  return sum;
}

// With 2-D, a node sends 2 S (N - 1) / N bytes to other nodes; with a flat ring, 2 S (P - 1) / P.
TEST(Machines, SendAsManyBytesAsTheFormulaSays) {
  for (const Shape shape : {Shape{2, 2}, Shape{3, 2}})
    on_all(shape, [shape](Machine& m) {
      const auto nodes = uint64_t(shape.nodes), local = uint64_t(shape.local), all = nodes * local;
      const size_t count = 1200 * all;
      const uint64_t bytes = count * sizeof(float);
      std::vector<float> data(count, 1);
      m.two_level->all_reduce(data.data(), count, nullptr);
      const Sent two_level = sent(*m.mesh, shape);
      if (two_level.outside * local != 2 * bytes * (nodes - 1) / nodes) return 1;
      if (two_level.inside != 0) return 2;
      m.flat->all_reduce(data.data(), count, nullptr);
      const Sent both = sent(*m.mesh, shape);
      // Only the last of a node's ranks has its right neighbour on the next node.
      const bool last = uint64_t(m.mesh->rank()) % local == local - 1;
      const uint64_t flat = 2 * bytes * (all - 1) / all;
      if (both.outside - two_level.outside != (last ? flat : 0)) return 3;
      return both.inside == (last ? 0 : flat) ? 0 : 4;
    });
}

TEST(Machines, GatherScatterAndSendToAll) {
  for (const Shape shape : {Shape{2, 1}, Shape{3, 1}, Shape{2, 2}})
    on_all(shape, [](Machine& m) {
      Communicator& ranks = *m.flat;
      const auto n = size_t(ranks.size()), own = size_t(ranks.rank());
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{70001}}) {
        std::vector<float> rows(n * count);
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = float((i + own) % 13);
        ranks.reduce_scatter(rows.data(), count, nullptr);
        for (size_t i = own * count; i < (own + 1) * count; ++i) {
          float sum = 0;
          for (size_t r = 0; r < n; ++r) sum += float((i + r) % 13);
          if (rows[i] != sum) return 1;
        }
        std::fill(rows.begin(), rows.end(), -1.0f);
        std::fill_n(rows.begin() + ptrdiff_t(own * count), count, float(own));
        ranks.all_gather(rows.data(), count, nullptr);
        for (size_t i = 0; i < rows.size(); ++i)
          if (rows[i] != float(i / count)) return 2;
        for (size_t root = 0; root < n; ++root) {
          std::vector<float> told(count, float(own == root ? 7 + root : 0));
          ranks.broadcast(told.data(), count * sizeof(float), int(root), nullptr);
          if (told.front() != float(7 + root) || told.back() != float(7 + root)) return 3;
        }
      }
      return 0;
    });
}

// In a group whose ranks are in a different order, every rank sends more to each rank, itself
// included, than any buffer holds.
TEST(Machines, ExchangeAllAtOnce) {
  on_all({2, 2}, [](Machine& m) {
    const int order[] = {3, 1, 0, 2};
    const auto group = m.flat->group(order);
    if (order[group->rank()] != m.flat->rank()) return 1;
    constexpr size_t count = 1 << 20;
    const int n = group->size();
    std::vector<std::vector<int>> out, in(size_t(2 * n), std::vector<int>(count));
    std::vector<Transfer> transfers;
    for (int i = 0; i < 2 * n; ++i) out.push_back(std::vector<int>(count, 100 * group->rank() + i));
    for (int i = 0; i < 2 * n; ++i) {
      transfers.push_back({in[size_t(i)].data(), count * sizeof(int), i % n, false});
      transfers.push_back({out[size_t(i)].data(), count * sizeof(int), i % n, true});
    }
    group->exchange(transfers, nullptr);
    for (int i = 0; i < 2 * n; ++i)
      for (const int got : in[size_t(i)])
        if (got != 100 * (i % n) + group->rank() + (i >= n ? n : 0)) return 2;
    return 0;
  });
}

// ---- nodes and ranks ----------------------------------------------------------------------------

std::vector<NodePlacement> seats_of(const std::vector<std::pair<int, std::string>>& nodes) {
  std::vector<NodePlacement> seats;
  for (const auto& [node, machine] : nodes) seats.push_back({.node = node, .machine = machine});
  number_nodes(seats);
  return seats;
}

TEST(Machines, AreNumberedByTheLauncherOrByName) {
  // Numbered by GROUP_RANK, on one host; and by host name, as for mpirun --map-by node.
  const auto by_number = seats_of({{0, "a"}, {0, "a"}, {1, "a"}, {1, "a"}});
  EXPECT_EQ(list_of_nodes(by_number), "a ranks 0-1, a ranks 2-3");
  const auto by_name = seats_of({{-1, "a"}, {-1, "b"}, {-1, "a"}, {-1, "b"}, {-1, "a"}});
  EXPECT_EQ(list_of_nodes(by_name), "a ranks 0, 2, 4, b ranks 1, 3");
  EXPECT_EQ(ranks_across(by_name, 1), std::vector<int>{});
  const auto equal = seats_of({{-1, "a"}, {-1, "b"}, {-1, "a"}, {-1, "b"}});
  EXPECT_EQ(ranks_across(equal, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(ranks_of_node(equal, 3), (std::vector<int>{1, 3}));
}

TEST(Machines, ChooseHowToAdd) {
  constexpr AllReduce two_level = AllReduce::two_level;
  World world;
  EXPECT_EQ(choose_all_reduce(two_level, world, true), AllReduce::flat);  // one machine
  world.seats = seats_of({{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}});
  EXPECT_EQ(choose_all_reduce({}, world, true), two_level);
  EXPECT_EQ(choose_all_reduce({}, world, false), AllReduce::flat);
  EXPECT_EQ(choose_all_reduce(two_level, world, false), two_level);
  EXPECT_EQ(choose_all_reduce(AllReduce::flat, world, true), AllReduce::flat);
  world.seats = seats_of({{0, "a"}, {0, "a"}, {1, "b"}});
  EXPECT_EQ(choose_all_reduce({}, world, true), AllReduce::flat);
  EXPECT_EQ(error_of([&] { choose_all_reduce(two_level, world, true); }),
            "--all-reduce 2d: the nodes have different numbers of ranks (a ranks 0-1, b rank 2); "
            "use --all-reduce flat");
}

}  // namespace
}  // namespace bv::test
