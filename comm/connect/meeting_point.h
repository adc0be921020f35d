// The meeting point of a run's processes. On one machine, an abstract Unix socket (no file; it
// disappears with the process), named after the user's id and World::master, open to the same
// user's processes; between machines, a TCP port.
#pragma once
#include <memory>
#include <string>

#include "comm/net/socket.h"
#include "comm/processes/world.h"

namespace bv {

// Functions return an empty socket, with errno set, on failure.
class MeetingPoint {
 public:
  virtual ~MeetingPoint() = default;
  virtual std::string name() const = 0;
  virtual Socket bound() const = 0;
  virtual Socket connected() const = 0;  // non-blocking; connected or connecting to rank 0
  // Whether the process at the other end may take part, as far as the system can tell.
  virtual bool admits(int fd) const = 0;
};

std::unique_ptr<MeetingPoint> meeting_point_here(const World&);
// At World::meeting_port() of World::host.
std::unique_ptr<MeetingPoint> meeting_point_of_network(const World&);
// Port 0: any free port.
std::unique_ptr<MeetingPoint> meeting_point_at(const std::string& address, int port);

}  // namespace bv
