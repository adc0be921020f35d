#include "comm/connect/host_comm.h"

#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "comm/connect/machines.h"
#include "comm/connect/rendezvous.h"
#include "comm/local/rank_barrier.h"
#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "engine/options/config.h"

namespace bv {
namespace {

// The right to print is claimed in the shared memory, if there is any and it can be reached.
bool is_first_error(const World& world, int exit_code) {
  if (world.shared_fd < 0) return true;
  try {
    const int fd = dup(world.shared_fd);
    return fd < 0 || SharedRegion::open(fd).claim_error(exit_code);
  } catch (const std::exception&) {
    return true;
  }
}

// `"lr": 0.1` of `  "lr": 0.1,`
std::string trimmed(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  if (!line.empty() && line.back() == ',') line.pop_back();
  return line;
}

std::string text_of_rank(Communicator& hosts, std::string text, int rank) {
  constexpr uint64_t max_bytes = 64 << 20;  // more than any list of classes
  uint64_t bytes = text.size();
  hosts.broadcast(&bytes, sizeof bytes, rank, nullptr);
  if (bytes > max_bytes) throw RunError("rank " + std::to_string(rank) + " sends no options");
  text.resize(bytes);
  hosts.broadcast(text.data(), bytes, rank, nullptr);
  return text;
}

}  // namespace

std::unique_ptr<Communicator> connect_hosts(World& world, size_t bucket_bytes, double timeout) {
  try {
    if (world.several_machines()) return connect_machines(world, timeout);
    if (world.size > 1 && world.shared_fd < 0) world.shared_fd = meet_peers(world, timeout);
    return make_shared_memory_communicator({.rank = world.rank,
                                            .size = world.size,
                                            .fd = world.shared_fd,
                                            .bucket_bytes = bucket_bytes,
                                            .timeout = timeout,
                                            .supervised = world.launched});
  } catch (const std::system_error& error) {
    throw RunError(error.what());
  } catch (const std::logic_error& error) {
    throw UserError(error.what());
  } catch (const std::runtime_error& error) {
    throw UserError(error.what());
  }
}

// Every rank comes to know the first one that differs, and says the same.
void require_same_options(Communicator& hosts, const Options& options, int64_t resumed_step,
                          const World& world) {
  const std::string own =
      config_to_json(options) + "\"resumed after step\": " + std::to_string(resumed_step) + "\n";
  const std::string first = text_of_rank(hosts, own, 0);
  if (hosts.all_reduce_scalar(own == first ? 0 : 1) == 0) return;
  for (int rank = 1; rank < hosts.size(); ++rank) {
    const std::string other = text_of_rank(hosts, own, rank);
    std::istringstream theirs(other), rank0s(first);
    std::string a, b;
    while (std::getline(theirs, a) && std::getline(rank0s, b))
      if (a != b)
        throw UserError(world.name_of(rank) + " was started with " + printable(trimmed(a)) +
                        ", rank 0 with " + printable(trimmed(b)) +
                        "; start all with the same options");
  }
}

void fail_worker(const World& world, const std::string& line, int exit_code) {
  std::fflush(stdout);
  if (is_first_error(world, exit_code)) print_error_line(line);
  _exit(exit_code);
}

}  // namespace bv
