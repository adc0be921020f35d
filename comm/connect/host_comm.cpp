#include "comm/connect/host_comm.h"

#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "base/error.h"
#include "comm/connect/machines.h"
#include "comm/connect/rendezvous.h"
#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"

namespace bv {
namespace {

// Whether to print `line`: this rank is the first to fail, or can't reach the shared memory.
bool is_first_error(const World& world, const std::string& line, int exit_code) {
  if (world.shared_fd < 0) return true;
  try {
    const int fd = dup(world.shared_fd);
    return fd < 0 || SharedRegion::open(fd).claim_error(exit_code, line);
  } catch (const std::exception&) {
    return true;
  }
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

void fail_worker(const World& world, const std::string& line, int exit_code) {
  std::fflush(stdout);
  if (is_first_error(world, line, exit_code)) print_error_line(line);
  _exit(exit_code);
}

}  // namespace bv
