#include "comm/processes/worker_status.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace bv {
namespace {

// A region closes its descriptor. It gets a copy, since the communicator opens the inherited one.
int copy_of(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw RunError(std::string("the launcher's memory: ") + std::strerror(errno));
  return copy;
}

}  // namespace

WorkerStatus::WorkerStatus(const World& world)
    : region_(SharedRegion::open(copy_of(world.shared_fd))), self_(region_.rank(world.rank)) {
  if (world.size == 1)
    heartbeat_ = std::make_unique<Heartbeat>(
        region_, RankPlace{.rank = 0, .size = 1, .timeout = 0, .supervised = true});
}

void WorkerStatus::claimed(const std::string& folder) {
  auto& place = region_.control().folder;
  if (folder.size() < place.size()) folder.copy(place.data(), folder.size());
}

void WorkerStatus::begins(int64_t step) { self_.step = step; }

}  // namespace bv
