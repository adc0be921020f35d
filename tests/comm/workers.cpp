#include "tests/comm/workers.h"

#include <cstdlib>

#include "comm/connect/device_communicator.h"
#include "comm/connect/host_comm.h"

namespace bv::test {

std::map<std::string, Worker>& workers() {
  static std::map<std::string, Worker> all;
  return all;
}

World own_world() {
  const auto world = world_from_environment();
  if (!world) std::exit(90);
  return *world;
}

int number(const Words& words, size_t i) {
  return i < words.size() ? std::atoi(words[i].c_str()) : 0;
}

int on_device(const Words& words, DeviceWorker work, bool staged) {
  World world = own_world();
  const DeviceKind device = words[1] == "simt" ? DeviceKind::simt : DeviceKind::cpu;
  auto hosts = connect_hosts(world, 1 << 12, 60);
  const auto backend = make_backend(device, {.index = 0, .threads = 1, .overlap = true});
  const auto peers = make_communicator(
      device, *backend,
      {.place = {.rank = world.rank, .size = world.size, .timeout = 60, .supervised = true},
       .fd = world.shared_fd,
       .host_comm = std::move(hosts)},
      staged);
  const int code = work(*peers, *backend, device);
  peers->barrier();
  return code;
}

}  // namespace bv::test
