// Times all-reduces between processes on this machine that act as the ranks of several nodes, with
// the cpu device's transports: shared memory inside a node, TCP between nodes.
//   build/collectives NODES RANKS_OF_A_NODE BYTES,.. STREAMS,..
// Several streams reduce a part of the bytes each, concurrently. Run by bench/collectives.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/connect/host_comm.h"
#include "comm/connect/machines.h"
#include "kernels/cpu/backend.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<int64_t>;

struct Bench {
  int nodes, local_size, port;
  Numbers bytes, streams;
};

World world_of(const Bench& bench, int rank) {
  World world;
  world.rank = rank;
  world.size = bench.nodes * bench.local_size;
  world.local_rank = rank % bench.local_size;
  world.local_size = bench.local_size;
  world.node = rank / bench.local_size;
  world.nodes = bench.nodes;
  world.host = "127.0.0.1";
  world.port = bench.port;
  world.master = "collectives " + std::to_string(getppid());
  world.machine = name_of_machine();
  return world;
}

std::unique_ptr<Communicator> connect(World& world, bool two_level) {
  constexpr size_t bucket_bytes = 4 << 20;
  constexpr double timeout = 60;
  auto hosts = connect_hosts(world, bucket_bytes, timeout);
  auto* const run = dynamic_cast<RunWatch*>(hosts.get());
  if (!run) return hosts;
  return connect_data(world, std::move(hosts), *run, {bucket_bytes, timeout, two_level});
}

struct Channel {
  std::unique_ptr<Communicator> own;
  Communicator* communicator;
  Stream stream;
};

// Median time in seconds of an all-reduce of `bytes` over the first `streams` channels.
double measure(Backend& backend, std::vector<Channel>& channels, size_t streams, size_t bytes) {
  const size_t each = std::max<size_t>(1, bytes / sizeof(float) / streams);
  std::vector<float> data(each * streams);
  std::vector<double> seconds;
  const auto end = Clock::now() + std::chrono::seconds(2);
  // The vote makes all ranks stop after the same number of all-reduces.
  for (double more = 1; more > 0;) {
    channels[0].communicator->barrier();
    const auto start = Clock::now();
    for (size_t i = 0; i < streams; ++i)
      channels[i].communicator->all_reduce(&data[i * each], each, channels[i].stream);
    for (size_t i = 0; i < streams; ++i) backend.synchronize(channels[i].stream);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    more = channels[0].communicator->all_reduce_scalar(seconds.size() < 3 || Clock::now() < end);
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

int run_rank(const Bench& bench, int rank, const std::string& way) {
  const auto backend = make_cpu_backend(1, true);
  World world = world_of(bench, rank);
  const auto whole = connect(world, way == "2d");
  std::vector<int> all(static_cast<size_t>(world.size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Channel> channels;
  for (int i = 0; i < *std::ranges::max_element(bench.streams); ++i) {
    auto own = i > 0 ? whole->group(all) : nullptr;
    Communicator* const used = own ? own.get() : whole.get();
    channels.push_back({std::move(own), used, backend->communication_stream(i)});
  }
  for (const int64_t bytes : bench.bytes)
    for (const int64_t streams : bench.streams) {
      const double seconds = measure(*backend, channels, size_t(streams), size_t(bytes));
      if (rank > 0) continue;
      std::printf("%-14s %12lld %8lld %12.3f %10.1f\n", way.c_str(), static_cast<long long>(bytes),
                  static_cast<long long>(streams), 1e3 * seconds, double(bytes) / seconds / 1e6);
      std::fflush(stdout);
    }
  return 0;
}

// Runs all ranks; returns their worst exit code.
int run_way(const Bench& bench, const std::string& way) {
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < bench.nodes * bench.local_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      int code = 1;
      try {
        code = run_rank(bench, rank, way);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "collectives: rank %d: %s\n", rank, e.what());
      }
      std::fflush(stdout);
      _exit(code);
    }
    if (pid > 0) children.push_back(pid);
  }
  int worst = children.empty() ? 1 : 0;
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

Numbers numbers(const std::string& text) {
  Numbers list;
  for (const std::string& word : split(text, ',')) list.push_back(parse_integer(word).value_or(0));
  return list;
}

}  // namespace
}  // namespace bv

int main(int argc, char** argv) {
  using namespace bv;
  const auto number = [&](int i) { return static_cast<int>(parse_integer(argv[i]).value_or(0)); };
  Bench bench{};
  if (argc == 5)
    bench = {number(1), number(2), 20000 + getpid() % 20000, numbers(argv[3]), numbers(argv[4])};
  const auto positive = [](int64_t n) { return n > 0; };
  if (bench.nodes < 1 || bench.local_size < 1 || bench.nodes * bench.local_size < 2 ||
      !std::ranges::all_of(bench.bytes, positive) ||
      !std::ranges::all_of(bench.streams, positive)) {
    std::fputs("usage: collectives NODES RANKS_OF_A_NODE BYTES,.. STREAMS,..\n", stderr);
    return 2;
  }
  std::printf("%-14s %12s %8s %12s %10s\n", "all-reduce", "bytes", "streams", "ms", "MB/s");
  if (bench.nodes == 1) return run_way(bench, "shared memory");
  const int flat = run_way(bench, "flat");
  ++bench.port;
  return std::max(flat, run_way(bench, "2d"));
}
