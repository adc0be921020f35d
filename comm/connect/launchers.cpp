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

// Multiples of --timeout (60 s by default). long_wait: a launcher may have to be started again.
// short_wait: the other nodes' processes may first have to time out. last_call: torchrun's 30 s.
constexpr double long_wait = 10, short_wait = 3, last_call = 0.5;
constexpr int32_t continues = -1;

// A Restart as launchers send it.
struct Report {
  int32_t number = 0, rank = 0, seen = 0;
  int32_t ends = continues;  // else the exit code
  int32_t processes = 0, fruitless = 0;
  int32_t node = 0, nodes = 0;  // from node 0: the receiver's place in the next start
  int64_t step = 0, step_before = 0, furthest = 0;
  std::array<char, 512> cause{};  // padded with zeros
};

Report report_of(const Restart& own) {
  Report report{.number = own.number,
                .rank = own.after.rank,
                .seen = own.after.seen,
                .ends = own.ends.value_or(continues),
                .processes = own.processes,
                .fruitless = own.fruitless,
                .step = own.after.step,
                .step_before = own.step_before,
                .furthest = own.furthest};
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
          .processes = report.processes,
          .ends = report.ends == continues ? std::nullopt : std::optional<int>(report.ends),
          .furthest = report.furthest,
          .fruitless = report.fruitless,
          .unlogged = own.unlogged};
}

// A final failure wins; otherwise the highest restart number. Among equal numbers, a report by the
// dead rank's node is preferred, then any with a cause: a launcher that was started again has none.
Report chosen(const std::vector<Report>& all) {
  const auto knows = [](const Report& r) {
    return std::pair(r.number, r.cause[0] == 0 ? 0 : r.seen ? 2 : 1);
  };
  for (const Report& r : all)
    if (r.ends > 0) return r;
  Report best = *std::ranges::max_element(all, {}, knows);
  if (std::ranges::any_of(all, [](const Report& r) { return r.ends == continues; }))
    best.ends = continues;
  for (const Report& r : all) {
    best.step_before = std::max(best.step_before, r.step_before);
    best.furthest = std::max(best.furthest, r.furthest);
    best.fruitless = std::max(best.fruitless, r.fruitless);
  }
  return best;
}

// A launcher has ended during the meeting; it may be started again.
struct LauncherEnded : RunError {
  explicit LauncherEnded(int node)
      : RunError("the launcher of node " + std::to_string(node) + " ended during the rendezvous") {}
};

// The launchers met because node 0's processes had ended cleanly, but one launcher needs a restart,
// and fewer nodes have connected than a start needs.
struct TooFew : LauncherEnded {
  using LauncherEnded::LauncherEnded;
};

// The other launcher's next message. Throws LauncherEnded, even if the message is only late.
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
  world.least_nodes = place.least;
  world.local_size = launch.nproc;
  world.launched = world.launchers = true;
  world.max_restarts = launch.max_restarts;
  world.host = place.master_addr;
  world.port = place.master_port;
  world.machine = name_of_machine();
  world.secret = secret ? secret : "";
  return world;
}

bool may_vary(const World& world) { return world.least_nodes < world.nodes; }

// "node 2 has not connected: this start has 2 nodes of --nnodes 2:3"
void say_missing(const World& world, const std::vector<int>& members) {
  std::vector<std::string> missing;
  for (int node = 0; node < world.size; ++node)
    if (!std::ranges::count(members, node)) missing.push_back("node " + std::to_string(node));
  if (missing.empty()) return;
  print_error_line(join(missing, ", ") + (missing.size() == 1 ? " has" : " have") +
                   " not connected: this start has " + std::to_string(members.size()) +
                   (members.size() == 1 ? " node" : " nodes") + " of " +
                   nodes_text(world.least_nodes, world.nodes));
}

}  // namespace

// At a run's end, only the nodes that trained or wait to join are expected.
Quorum Launchers::quorum_of(const World& world, bool starts) const {
  Quorum quorum{.least = starts ? world.least_nodes : 1, .last_call = timeout_ * last_call};
  std::set<int> expected = waiting_;
  expected.insert(members_.begin(), members_.end());
  for (int node = 1; node < world.size; ++node)
    if (starts || expected.contains(node)) quorum.expected.push_back(node);
  return quorum;
}

Agreement Launchers::meet_once(const World& world, const Restart& own, double wait, bool starts) {
  const auto agreed = [&](const Report& report) {
    return Agreement{restart_of(report, own), report.node, report.nodes};
  };
  const Quorum quorum = quorum_of(world, starts);
  const std::vector<Socket> sockets =
      meet_over_network(world, wait, may_vary(world) ? &quorum : nullptr);
  if (world.rank > 0) {
    send(sockets[0], report_of(own), 0);
    return agreed(receive(sockets[0], timeout_, 0));
  }
  std::vector<Report> all{report_of(own)};
  std::vector<int> members{0};
  for (int node = 1; node < world.size; ++node) {
    if (!sockets[size_t(node)]) continue;
    all.push_back(receive(sockets[size_t(node)], timeout_, node));
    members.push_back(node);
  }
  Report best = chosen(all);
  best.nodes = int(members.size());
  if (best.ends == continues && best.nodes < world.least_nodes) throw TooFew(0);
  for (int i = 1; i < best.nodes; ++i) {
    best.node = i;
    send(sockets[size_t(members[size_t(i)])], best, members[size_t(i)]);
  }
  best.node = 0;
  members_ = members;
  if (best.ends == continues) say_missing(world, members);
  return agreed(best);
}

Agreement Launchers::meet(const Launch& launch, const Restart& own) {
  waiting_ = door_ ? door_->waiting() : std::set<int>();
  door_.reset();
  World& world = world_ = world_of(launch);
  timeout_ = launch.timeout;
  const bool again = own.number > 0 || own.ends;
  const bool waits_long = (again || launch.begun) && own.ends.value_or(0) == 0;
  world.patience = std::string(waits_long ? "ten" : "three") + " times --timeout";
  const double wait = launch.timeout * (waits_long ? long_wait : short_wait);
  auto end = after(wait);
  bool starts = !own.ends;
  int waits = 0;
  while (true) try {
      return meet_once(world, own, wait, starts);
    } catch (const TooFew&) {
      starts = true;
    } catch (const LauncherEnded&) {
      if (MeetingClock::now() >= end) throw;
    } catch (const RunIsTraining& e) {
      // Not printed at once: node 0 may be about to learn of an end that this launcher has seen.
      constexpr int pause_ms = 500, said_after = 4;
      if (++waits == said_after) print_error_line(e.what());
      for (int ms = 0; ms < pause_ms; ms += 10) pause_a_little();
      end = after(wait);
    } catch (const UserError& e) {
      const bool ended = dynamic_cast<const Rank0Ended*>(&e) != nullptr,
                 missing = dynamic_cast<const RanksMissing*>(&e) != nullptr;
      if (ended && MeetingClock::now() < end) continue;
      if (again || (launch.begun && missing))
        throw RunError(e.what());  // a lost node is not a user error
      throw;
    }
}

void Launchers::answer_latecomers(const Restart& running) {
  if (world_.rank > 0 || !may_vary(world_)) return;
  if (!door_)
    door_ = std::make_unique<FrontDoor>(
        world_, running.most == 0 ? ", and there is no restart: the run has no --max-restarts"
                : running.number == running.most
                    ? ", and there is no restart: all of --max-restarts " +
                          std::to_string(running.most) + " are used up"
                    : "");
  door_->look();
}

}  // namespace bv
