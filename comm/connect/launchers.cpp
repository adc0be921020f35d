#include "comm/connect/launchers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/connect/meeting_messages.h"
#include "comm/connect/rendezvous.h"
#include "comm/processes/world.h"

namespace bv {
namespace {

// Times --timeout. Long: a launcher may have to be started again. Short: the others' processes may
// have to find out first that this one's are missing.
constexpr double long_wait = 10, short_wait = 3;
constexpr int32_t continues = -1;

// A Restart as launchers send it.
struct Report {
  int32_t number = 0, rank = 0, seen = 0;
  int32_t ends = continues;  // else the exit code
  int64_t step = 0, step_before = 0;
  std::array<char, 512> cause{};  // padded with zeros
};

Report report_of(const Restart& own) {
  Report report{.number = own.number,
                .rank = own.after.rank,
                .seen = own.after.seen,
                .ends = own.ends.value_or(continues),
                .step = own.after.step,
                .step_before = own.step_before};
  own.after.cause.copy(report.cause.data(), report.cause.size() - 1);
  return report;
}

Restart restart_of(const Report& report, const Restart& own) {
  const auto& cause = report.cause;
  return {.number = report.number,
          .most = own.most,
          .after = {.rank = report.rank,
                    .step = report.step,
                    .cause = printable({cause.data(), strnlen(cause.data(), cause.size())},
                                       cause.size()),
                    .seen = report.seen != 0},
          .folder = own.folder,
          .step_before = report.step_before,
          .ends = report.ends == continues ? std::nullopt : std::optional<int>(report.ends)};
}

// A launcher that was started again knows no end, and one on another node than the rank that died
// knows it from its own ranks.
Report chosen(const std::vector<Report>& all) {
  const auto knows = [](const Report& r) {
    return std::pair(r.number, r.cause[0] == 0 ? 0 : r.seen ? 2 : 1);
  };
  for (const Report& r : all)
    if (r.ends > 0) return r;
  Report best = *std::ranges::max_element(all, {}, knows);
  if (std::ranges::any_of(all, [](const Report& r) { return r.ends == continues; }))
    best.ends = continues;
  for (const Report& r : all) best.step_before = std::max(best.step_before, r.step_before);
  return best;
}

// A launcher has ended while they met: it may be started again.
struct LauncherEnded : RunError {
  explicit LauncherEnded(int node)
      : RunError("the launcher of node " + std::to_string(node) + " ended while they met") {}
};

// The other launcher's next message. Throws LauncherEnded, also if it is late.
Report receive(const Socket& from, double timeout, int node) {
  Incoming<Report> message;
  const auto end = after(timeout);
  while (!message.complete()) {
    std::vector<pollfd> items{{from.fd(), POLLIN, 0}};
    wait_for_events(items);
    if (MeetingClock::now() >= end || (items[0].revents && !message.receive(from.fd())))
      throw LauncherEnded(node);
  }
  return message.value;
}

void send(const Socket& to, const Report& report, int node) {
  if (!send_message(to.fd(), report)) throw LauncherEnded(node);
}

World world_of(const Launch& launch) {
  const NodePlace& place = launch.place;
  const char* const secret = std::getenv("BAREVISION_SECRET");
  World world;
  world.rank = world.node = place.node;
  world.size = world.nodes = place.nodes;
  world.local_size = launch.nproc;
  world.launched = world.launchers = true;
  world.host = place.master_addr;
  world.port = place.master_port;
  world.machine = name_of_machine();
  world.secret = secret ? secret : "";
  return world;
}

Report meet(const World& world, const Report& own, double timeout, double wait) {
  const std::vector<Socket> sockets = meet_over_network(world, wait);
  if (world.rank > 0) {
    send(sockets[0], own, 0);
    return receive(sockets[0], timeout, 0);
  }
  std::vector<Report> all{own};
  for (int node = 1; node < world.size; ++node)
    all.push_back(receive(sockets[size_t(node)], timeout, node));
  const Report best = chosen(all);
  for (int node = 1; node < world.size; ++node) send(sockets[size_t(node)], best, node);
  return best;
}

}  // namespace

Restart meet_launchers(const Launch& launch, const Restart& own) {
  World world = world_of(launch);
  const bool again = own.number > 0 || own.ends, waits_long = again && own.ends.value_or(0) == 0;
  world.patience = std::string(waits_long ? "ten" : "three") + " times --timeout";
  const double wait = launch.timeout * (waits_long ? long_wait : short_wait);
  const auto end = after(wait);
  while (true) try {
      return restart_of(meet(world, report_of(own), launch.timeout, wait), own);
    } catch (const LauncherEnded&) {
      if (MeetingClock::now() >= end) throw;
    } catch (const Rank0Ended&) {
      if (MeetingClock::now() >= end) throw;
    } catch (const UserError& e) {
      if (again) throw RunError(e.what());  // a node that is lost is nobody's mistake
      throw;
    }
}

}  // namespace bv
