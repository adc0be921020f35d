#include "comm/connect/machines.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/connect/rendezvous.h"
#include "comm/connect/rendezvous_server.h"
#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "comm/net/ring_communicator.h"
#include "comm/two_level_communicator.h"

namespace bv {
namespace {

// A NodePlacement as the ranks send it.
struct SeatRow {
  int32_t node = 0, local_rank = 0;
  std::array<char, 64> machine{}, address{};  // padded with zeros
};

using AddressOf = int (*)(int, sockaddr*, socklen_t*);

// The address of one end of a connection: "10.0.0.2".
std::string numeric_address(int fd, AddressOf end) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST] = {};
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (end(fd, generic, &length) != 0 ||
      getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    throw RunError("a connection between the processes has no address");
  return text;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// The ranks of this machine as a separate run, whose rendezvous is for `purpose`.
World node_of(const World& world, const std::string& purpose) {
  World node = world;
  node.rank = world.local_rank;
  node.size = world.local_size;
  node.nodes = 1;
  node.launched = false;  // identified by a job's name, not by a port
  node.master += "/node " + std::to_string(world.node) + "/" + purpose;
  return node;
}

int shared_by_node(const World& world, double timeout) {
  if (world.local_size > 1) return meet_peers(node_of(world, "control"), timeout, world.size);
  const SharedRegion region = SharedRegion::create(world.size);
  const int fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw RunError(std::string("dup: ") + std::strerror(errno));
  return fd;
}

// Gathers rows: row r of the result comes from rank r.
template <class T>
std::vector<T> gather(Communicator& hosts, const T& own) {
  static_assert(sizeof(T) % sizeof(float) == 0);
  std::vector<T> rows(size_t(hosts.size()));
  rows[size_t(hosts.rank())] = own;
  hosts.all_gather(reinterpret_cast<float*>(rows.data()), sizeof(T) / sizeof(float), nullptr);
  return rows;
}

template <size_t N>
std::string text_of(const std::array<char, N>& chars) {
  return printable(std::string(chars.data(), strnlen(chars.data(), N)));
}

// rank0: the address at which this rank reaches rank 0, and therefore all ranks on its machine.
std::vector<NodePlacement> gather_seats(Communicator& hosts, const World& world,
                                        const std::string& own, const std::string& rank0) {
  SeatRow row{.node = world.node, .local_rank = world.local_rank};
  world.machine.copy(row.machine.data(), row.machine.size() - 1);
  own.copy(row.address.data(), row.address.size() - 1);
  std::vector<NodePlacement> seats;
  for (const SeatRow& r : gather(hosts, row))
    seats.push_back({r.node, r.local_rank, text_of(r.machine), text_of(r.address)});
  number_nodes(seats);
  for (NodePlacement& seat : seats)
    if (seat.node == 0) seat.address = rank0;
  return seats;
}

std::vector<Socket> connect_pairs(const World& world, Communicator& hosts, double timeout) {
  Socket listener = listen_at(world, *meeting_point_at("", 0), timeout);
  const std::vector<int> ports = gather(hosts, port_of(listener.fd()));
  std::vector<std::string> addresses;
  for (const NodePlacement& seat : world.seats) addresses.push_back(seat.address);
  return meet_pairwise(world, std::move(listener), addresses, ports, timeout);
}

// Connects the ranks of this machine through its memory; null if there is only one.
std::unique_ptr<Communicator> connect_node(const World& world, RunWatch& run,
                                           const DataLinks& links) {
  const std::vector<int> ranks = ranks_of_node(world.seats, world.rank);
  if (ranks.size() == 1) return nullptr;
  World node = node_of(world, "data");
  node.rank = static_cast<int>(std::ranges::find(ranks, world.rank) - ranks.begin());
  const Socket memory(meet_peers(node, links.timeout));
  return make_shared_memory_communicator({.rank = node.rank,
                                          .size = node.size,
                                          .fd = memory.fd(),
                                          .bucket_bytes = links.bucket_bytes,
                                          .timeout = links.timeout,
                                          .supervised = world.launched,
                                          .run = &run,
                                          .ranks = ranks});
}

}  // namespace

std::unique_ptr<HostsCommunicator> connect_machines(World& world, double timeout) {
  std::vector<Socket> sockets = meet_over_network(world, timeout);
  const int star = sockets[0].fd();  // to rank 0
  const std::string own = world.rank > 0 ? numeric_address(star, getsockname) : "",
                    rank0 = world.rank > 0 ? numeric_address(star, getpeername) : "";
  if (world.shared_fd < 0) world.shared_fd = shared_by_node(world, timeout);
  auto hosts = make_tcp_communicator(
      {.rank = world.rank, .size = world.size, .timeout = timeout, .supervised = world.launched},
      std::move(sockets), world.shared_fd);
  world.seats = gather_seats(*hosts, world, own, rank0);
  world.node = world.seats[size_t(world.rank)].node;
  std::vector<HostsCommunicator::Rank> names;
  for (int r = 0; r < world.size; ++r)
    names.push_back({world.name_of(r), world.seats[size_t(r)].node == world.node});
  hosts->introduce(std::move(names));
  return hosts;
}

AllReduce choose_all_reduce(std::optional<AllReduce> asked, const World& world, bool on_cpu) {
  const bool equal = !world.seats.empty() && !ranks_across(world.seats, 0).empty();
  if (asked == AllReduce::two_level && !world.seats.empty() && !equal)
    throw UserError("--all-reduce 2d: the nodes have different numbers of ranks (" +
                    list_of_nodes(world.seats) + "); use --all-reduce flat");
  const AllReduce best = on_cpu ? AllReduce::two_level : AllReduce::flat;
  return equal ? asked.value_or(best) : AllReduce::flat;
}

std::unique_ptr<Communicator> connect_data(const World& world, std::unique_ptr<Communicator> hosts,
                                           RunWatch& run, const DataLinks& links) {
  auto sockets = connect_pairs(world, *hosts, links.timeout);
  auto whole = make_ring_communicator(
      std::make_shared<Mesh>(world.rank, std::move(sockets), run, links.timeout), std::move(hosts));
  if (!links.two_level) return whole;
  auto local = connect_node(world, run, links);
  auto across = whole->group(ranks_across(world.seats, world.rank));
  return make_two_level_communicator(std::move(whole), std::move(local), std::move(across));
}

std::unique_ptr<Communicator> make_two_level(const World& world,
                                             std::unique_ptr<Communicator> whole) {
  auto local = whole->group(ranks_of_node(world.seats, world.rank));
  auto across = whole->group(ranks_across(world.seats, world.rank));
  return make_two_level_communicator(std::move(whole), std::move(local), std::move(across));
}

}  // namespace bv
