#include "tests/comm/communicator_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bv::test {
namespace {

// Values of many magnitudes, whose sum in fp32 depends on the order.
float value(int rank, size_t i) {
  const uint32_t hash = (uint32_t(i) * 3 + uint32_t(rank) + 1) * 2654435761u;
  return float(int(hash >> 8) - (1 << 23)) * float(1u << (hash & 31)) / 3.0f;
}
float sum_of(const std::vector<int>& ranks, size_t i) {
  float sum = value(ranks[0], i);
  for (size_t r = 1; r < ranks.size(); ++r) sum += value(ranks[r], i);
  return sum;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<int> numbers(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Device memory with a copy on the host and a sentinel at its end.
template <class T>
class Array {
 public:
  Array(Backend& backend, size_t count) : backend_(backend), memory_(backend, bytes(count)) {
    host.assign(count + 1, T(-7));
  }
  Array(Array&&) = default;
  T* data() const { return memory_.data<T>(); }
  void upload() { backend_.to_device(data(), host.data(), memory_.bytes(), nullptr); }
  void download() {
    backend_.to_host(host.data(), data(), memory_.bytes(), nullptr);
    backend_.synchronize(nullptr);
    require(host.back() == T(-7), "a write past the end");
  }
  std::vector<T> host;

 private:
  static size_t bytes(size_t count) { return (count + 1) * sizeof(T); }
  Backend& backend_;
  DeviceMemory memory_;
};

// A communicator, and the ranks of the run that it connects.
struct Peers {
  Communicator& comm;
  Backend& backend;
  std::vector<int> ranks;
  Stream stream = nullptr;  // on which its collectives run
  int own() const { return ranks[size_t(comm.rank())]; }
};

// Makes stream `then` wait for the work so far on stream `first`.
void order(Backend& backend, Stream first, Stream then) {
  const Event event = backend.create_event();
  backend.record(event, first);
  backend.wait(then, event);
}

template <class Work>
void on_stream_of(const Peers& p, Work work) {
  order(p.backend, nullptr, p.stream);
  work();
  order(p.backend, p.stream, nullptr);
}

void check_rows(const Peers& p, size_t count) {
  const auto size = p.ranks.size(), own = size_t(p.comm.rank());
  Array<float> rows(p.backend, size * count), all(p.backend, size * count);
  for (size_t i = 0; i < size * count; ++i) rows.host[i] = all.host[i] = value(p.own(), i);
  rows.upload(), all.upload();
  on_stream_of(p, [&] {
    p.comm.reduce_scatter(rows.data(), count, p.stream);
    p.comm.all_reduce(all.data(), size * count, p.stream);
  });
  rows.download(), all.download();
  const std::string what = " of " + std::to_string(count) + " for " + std::to_string(size);
  for (size_t i = own * count; i < (own + 1) * count; ++i)
    require(rows.host[i] == sum_of(p.ranks, i), "reduce_scatter" + what);
  for (size_t i = 0; i < size * count; ++i)
    require(all.host[i] == sum_of(p.ranks, i), "all_reduce" + what);
  // Gathering the reduce-scatter's rows must give the all-reduce's result.
  on_stream_of(p, [&] { p.comm.all_gather(rows.data(), count, p.stream); });
  rows.download();
  require(rows.host == all.host, "all_gather" + what);
}

unsigned char byte_of(int from, int to, size_t message, size_t i) {
  return static_cast<unsigned char>(
      (uint32_t(i) * 31 + uint32_t(message) * 7 + uint32_t(from) * 5 + uint32_t(to)) *
          2654435761u >>
      24);
}

struct Message {
  Array<unsigned char> bytes;
  size_t size;
  int peer;
  bool send;
  size_t number;  // index of this message between the two ranks
};

// Every rank sends messages of `sizes` to each rank for which goes(from, to) holds. The ranks order
// their transfers differently.
template <class Goes>
void check_exchange(const Peers& p, const std::vector<size_t>& sizes, uint32_t seed, Goes goes) {
  const int me = p.comm.rank();
  std::vector<Message> messages;
  for (int peer = 0; peer < p.comm.size(); ++peer)
    for (const bool send : {true, false}) {
      if (!(send ? goes(me, peer) : goes(peer, me))) continue;
      for (size_t k = 0; k < sizes.size(); ++k) {
        messages.push_back({Array<unsigned char>(p.backend, sizes[k]), sizes[k], peer, send, k});
        Message& m = messages.back();
        for (size_t i = 0; send && i < m.size; ++i) m.bytes.host[i] = byte_of(me, peer, k, i);
        m.bytes.upload();
      }
    }
  // A random order that keeps the order within each pair of ranks.
  std::vector<size_t> lanes;
  for (size_t i = 0; i < messages.size(); i += sizes.size()) lanes.push_back(i);
  std::vector<size_t> left(lanes.size(), sizes.size());
  std::vector<Transfer> transfers;
  uint32_t random = seed * 2654435761u + uint32_t(me);
  while (transfers.size() < messages.size()) {
    random = random * 1664525 + 1013904223;
    const size_t lane = (random >> 8) % lanes.size();
    if (left[lane] == 0) continue;
    const Message& m = messages[lanes[lane] + sizes.size() - left[lane]--];
    transfers.push_back({m.bytes.data(), m.size, m.peer, m.send});
  }
  if (!transfers.empty()) on_stream_of(p, [&] { p.comm.exchange(transfers, p.stream); });
  for (Message& m : messages) {
    m.bytes.download();
    const int from = m.send ? me : m.peer, to = m.send ? m.peer : me;
    for (size_t i = 0; i < m.size; ++i)
      require(m.bytes.host[i] == byte_of(from, to, m.number, i),
              "a message of " + std::to_string(m.size) + " bytes");
  }
}

void check_exchanges(const Peers& p, uint32_t seeds) {
  const int size = p.comm.size();
  const std::vector<size_t> sizes = {5, 0, 1, 4096, 140001, 0, 77};
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    check_exchange(p, {1000}, seed, [&](int from, int to) { return to == (from + 1) % size; });
    check_exchange(p, sizes, seed, [&](int from, int to) { return from != to; });
    check_exchange(p, {1, 140000}, seed, [](int, int) { return true; });  // also to itself
  }
  // A pipeline: only neighbours exchange, and the ends have one neighbour.
  check_exchange(p, {262147}, 1, [](int from, int to) { return to == from + 1; });
  check_exchange(p, {0}, 1, [](int from, int to) { return from == to + 1; });
}

// One rank sends two messages in one call; the other receives them in two.
void check_divided_exchange(const Peers& p) {
  if (p.comm.size() < 2 || p.comm.rank() > 1) return;
  Array<unsigned char> first(p.backend, 200000), second(p.backend, 3);
  const bool sends = p.comm.rank() == 0;
  if (sends) first.host.assign(200000, 1), first.host.push_back(static_cast<unsigned char>(-7));
  if (sends) second.host = {4, 5, 6, static_cast<unsigned char>(-7)};
  first.upload(), second.upload();
  const int peer = sends ? 1 : 0;
  const Transfer one{first.data(), 200000, peer, sends}, two{second.data(), 3, peer, sends};
  on_stream_of(p, [&] {
    if (sends) return p.comm.exchange(std::vector{one, two}, p.stream);
    p.comm.exchange(std::vector{one}, p.stream);
    p.comm.exchange(std::vector{two}, p.stream);
  });
  first.download(), second.download();
  require(first.host[0] == 1 && first.host[199999] == 1 && second.host[2] == 6,
          "an exchange in two parts");
}

enum class How { briefly, at_length };

void check_all(const Peers& p, How how) {
  for (const size_t count : {0, 1, 7, 1031, 5000, 70001})
    if (how == How::at_length || count < 5000) check_rows(p, count);
  check_exchanges(p, how == How::at_length ? 3 : 1);
  check_divided_exchange(p);
  Array<float> sent(p.backend, 9);
  for (size_t i = 0; i < 9; ++i) sent.host[i] = value(p.own(), i);
  sent.upload();
  const int root = p.comm.size() - 1;
  on_stream_of(p, [&] { p.comm.broadcast(sent.data(), 9 * sizeof(float), root, p.stream); });
  sent.download();
  for (size_t i = 0; i < 9; ++i)
    require(sent.host[i] == value(p.ranks[size_t(root)], i), "broadcast");
  require(p.comm.all_reduce_scalar(p.own() + 1) ==
              std::accumulate(p.ranks.begin(), p.ranks.end(), int(p.ranks.size())),
          "all_reduce_scalar");
  p.comm.barrier();
}

// The ranks for which key() is the same as for this rank, in reverse order.
template <class Key>
std::vector<int> those_with(int size, int rank, Key key) {
  std::vector<int> ranks;
  for (int r = size; r-- > 0;)
    if (key(r) == key(rank)) ranks.push_back(r);
  return ranks;
}

void check_groups(Communicator& world, Backend& backend) {
  const int size = world.size(), rank = world.rank();
  const auto pairs = those_with(size, rank, [](int r) { return r / 2; });
  const auto turns = those_with(size, rank, [](int r) { return r % 2; });
  const auto everyone = numbers(size);
  const auto by_pairs = world.group(pairs), by_turns = world.group(turns);
  const auto same = world.group(everyone), alone = world.group(std::vector{rank});
  require(pairs[size_t(by_pairs->rank())] == rank && by_pairs->size() == int(pairs.size()),
          "place");
  for (const bool own_stream : {false, true}) {
    const auto stream = [&](int channel) {
      return own_stream ? backend.communication_stream(channel) : nullptr;
    };
    check_all({*by_pairs, backend, pairs, stream(0)}, How::briefly);
    check_all({*by_turns, backend, turns, stream(1)}, How::briefly);
    check_all({*same, backend, everyone, stream(2)}, How::briefly);
    check_all({*alone, backend, {rank}, stream(0)}, How::briefly);
  }
  // A group of a group: this rank's pair in reverse order.
  std::vector<int> places = numbers(by_pairs->size()), ranks = pairs;
  std::reverse(places.begin(), places.end());
  std::reverse(ranks.begin(), ranks.end());
  const auto turned = by_pairs->group(places);
  check_all({*turned, backend, ranks}, How::briefly);
}

// Collectives of two groups and of all ranks, each on a stream of its own.
void check_channels(Communicator& world, Backend& backend, Side side) {
  constexpr size_t count = 30000;
  constexpr int rounds = 6;
  const int size = world.size(), rank = world.rank();
  const auto pairs = those_with(size, rank, [](int r) { return r / 2; });
  const auto turns = those_with(size, rank, [](int r) { return r % 2; });
  const auto by_pairs = world.group(pairs), by_turns = world.group(turns);
  const std::vector<Peers> all = {{world, backend, numbers(size), backend.communication_stream(0)},
                                  {*by_pairs, backend, pairs, backend.communication_stream(1)},
                                  {*by_turns, backend, turns, backend.communication_stream(2)}};
  std::vector<std::vector<Array<float>>> data(all.size());
  for (size_t channel = 0; channel < all.size(); ++channel)
    for (int round = 0; round < rounds; ++round) {
      Array<float>& a = data[channel].emplace_back(backend, count);
      for (size_t i = 0; i < count; ++i) a.host[i] = value(rank, i + size_t(round));
      a.upload();
    }
  for (const Peers& p : all) order(backend, nullptr, p.stream);
  const bool turned = side == Side::by_side && all[0].stream && rank % 2 == 1;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t channel = turned ? all.size() - 1 - i : i;
      all[channel].comm.all_reduce(data[channel][size_t(round)].data(), count, all[channel].stream);
    }
  for (const Peers& p : all) order(backend, p.stream, nullptr);
  for (size_t channel = 0; channel < all.size(); ++channel)
    for (int round = 0; round < rounds; ++round) {
      Array<float>& a = data[channel][size_t(round)];
      a.download();
      for (size_t i = 0; i < count; ++i)
        require(a.host[i] == sum_of(all[channel].ranks, i + size_t(round)), "channels");
    }
}

// While rank 0 waits for its peers on the host, its device's message proceeds: rank 1 may wait for
// the message before it meets rank 0 on the host, or queue its side only after that.
void check_beside_the_host(Communicator& world, Backend& backend) {
  if (world.size() < 2) return;
  constexpr size_t bytes = 200000;
  const int rank = world.rank();
  const auto messages = world.group(numbers(world.size()));
  const Stream stream = backend.communication_stream(1);
  for (const bool rank_0_sends : {true, false})
    for (const bool rank_1_waits_first : {true, false}) {
      Array<unsigned char> message(backend, bytes);
      const bool sends = rank == (rank_0_sends ? 0 : 1);
      if (sends) std::fill_n(message.host.begin(), bytes, 'x');
      message.upload();
      const auto exchange = [&] {
        if (rank > 1) return;
        order(backend, nullptr, stream);
        messages->exchange(std::vector{Transfer{message.data(), bytes, 1 - rank, sends}}, stream);
      };
      const auto arrive = [&] {
        order(backend, stream, nullptr);
        message.download();
      };
      const auto meet = [&] {
        require(world.all_reduce_scalar(1) == world.size(), "all_reduce_scalar beside a message");
      };
      if (rank == 1 && !rank_1_waits_first) meet();
      exchange();
      if (rank == 1) arrive();
      if (rank != 1 || rank_1_waits_first) meet();
      if (rank != 1) arrive();
      for (size_t i = 0; i < bytes && rank < 2; ++i)
        require(message.host[i] == 'x', "a message beside a host's all-reduce");
    }
}

// An exchange with a rank that doesn't exist is refused.
void check_refusals(Communicator& world) {
  const auto refused = [](auto call) {
    try {
      call();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  char c = 0;
  const std::vector<Transfer> stray = {{&c, 1, world.size(), true}};
  require(refused([&] { world.exchange(stray, nullptr); }), "a peer that there isn't");
}

}  // namespace

int check_communicator(Communicator& world, Backend& backend, Side side) try {
  check_all({world, backend, numbers(world.size())}, How::at_length);
  check_groups(world, backend);
  check_channels(world, backend, side);
  if (side == Side::by_side) check_beside_the_host(world, backend);
  check_refusals(world);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "rank %d: %s\n", world.rank(), e.what());
  return 1;
}

}  // namespace bv::test
