// Rank 0 listens; the others connect and prove that they belong to the run (handshake.h). When all
// have connected, each gets an answer; if all are on one machine, it carries the shared memory's
// descriptor. If rank 0 gives up, it answers with the reason.
#include "comm/connect/rendezvous.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/connect/rendezvous_server.h"
#include "comm/local/shared_region.h"

namespace bv {
namespace {

using Clock = MeetingClock;

void send_at_once(const Socket& socket) {
  const int on = 1;  // not available for Unix sockets
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Waits for input. False once `end` has passed.
bool wait_readable(int fd, Clock::time_point end) {
  std::vector<pollfd> items{{fd, POLLIN, 0}};
  while (!items[0].revents && Clock::now() < end) wait_for_events(items);
  return items[0].revents != 0;
}

// Rank 0's Challenge to `handshake`; nothing if the connection ends first: rank 0 may be about to
// end, or busy with other peers.
std::optional<Challenge> challenge_from(const Socket& rank0, const MeetingPoint& point,
                                        const Handshake& handshake, Clock::time_point end) {
  Incoming<Challenge> challenge;
  if (!send_message(rank0.fd(), handshake)) return std::nullopt;
  while (!challenge.complete()) {
    if (!wait_readable(rank0.fd(), end) || !challenge.receive(rank0.fd())) return std::nullopt;
    if (!challenge.is_ours())
      throw UserError("at " + point.name() + " another program answers (\"" +
                      printable(challenge.text(), 24) +
                      "\"), not rank 0; give the run another port");
  }
  return challenge.value;
}

// Throws UserError unless rank 0 belongs to this run.
void check(const World& world, const Handshake& handshake, const Challenge& challenge) {
  const Preamble& theirs = challenge.preamble;
  const bool by_nodes = world.launched && world.nodes > 1;
  const std::string self = "rank " + std::to_string(world.rank);
  if (theirs.version != Preamble::our_version)
    throw UserError((by_nodes
                         ? "node " + std::to_string(world.node) + " (" + world.machine + "): node 0"
                         : self + ": rank 0") +
                    " runs another version of this program; start the same version on all");
  if (theirs.has_secret != handshake.preamble.has_secret)
    throw UserError("BAREVISION_SECRET is set for " + (theirs.has_secret ? "rank 0" : self) +
                    ", not for " + (theirs.has_secret ? self : "rank 0") +
                    "; set the same for all ranks");
  if (!equal(challenge.proof, proof_of_rank0(world, handshake, theirs.nonce)))
    throw UserError(self + ": rank 0 has another BAREVISION_SECRET; set the same for all ranks");
}

// A connection to rank 0 after the handshake; empty once `end` has passed.
Socket reach(const World& world, const MeetingPoint& point, Clock::time_point end) {
  WaitingLine line(world);
  for (; Clock::now() < end; pause_a_little()) {
    if (line.is_due()) line.say("node 0 (rank 0) at " + point.name());
    Socket made = point.connected();
    if (!made && (errno == EACCES || errno == EPERM || errno == EAFNOSUPPORT))
      fail_to_meet("connect");
    if (!made || !point.admits(made.fd())) continue;
    const Handshake handshake = handshake_of(world);
    const auto challenge = challenge_from(made, point, handshake, end);
    if (!challenge) continue;
    check(world, handshake, *challenge);
    const Proof proof{proof_of_peer(world, handshake, challenge->preamble.nonce)};
    if (send_message(made.fd(), proof)) return made;
  }
  return Socket();
}

// Rank 0's answer and the file descriptor sent with it; nothing if the connection has ended.
std::optional<Answer> receive(const Socket& from, int& fd) {
  AnswerMessage message({});
  if (recvmsg(from.fd(), &message.header, MSG_CMSG_CLOEXEC) != ssize_t(sizeof message.answer) ||
      message.answer.magic != Preamble::our_magic)
    return std::nullopt;
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (control && control->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  return message.answer;
}

// The reason why rank 0 refused this process.
std::string refusal(const World& world, const Answer& from_rank0) {
  const std::string self = "rank " + std::to_string(world.rank),
                    node = "node " + std::to_string(world.node) + " (" + world.machine + ")";
  if (from_rank0.reason[0] != 0) {
    const auto& reason = from_rank0.reason;
    const std::string why =
        printable({reason.data(), strnlen(reason.data(), reason.size())}, reason.size());
    return (world.launched ? "" : self + ": ") + why;
  }
  if (from_rank0.verdict == Verdict::rank_taken)
    return world.launched
               ? "another launcher has connected with --node-rank " + std::to_string(world.node) +
                     " before this one (" + world.machine + "); give each node its own"
               : "two processes are " + self + advice(world);
  if (world.launched)
    return node + " was started with " + text_of(shape_of(world), from_rank0.shape) +
           ", node 0 with " + text_of(from_rank0.shape, shape_of(world)) +
           "; give all nodes the same";
  return self + " of " + std::to_string(world.size) + ": rank 0 has another number of processes" +
         advice(world);
}

// "rank 2 waited 10 s for rank 0 at HOST:29501"
std::string waited_for_rank0(const World& world, const MeetingPoint& point, double timeout) {
  if (!world.launched)
    return "rank " + std::to_string(world.rank) + " waited " + seconds_text(timeout) +
           " for rank 0 at " + point.name();
  return "node 0 (rank 0) did not answer at " + point.name() + " within " + seconds_text(timeout) +
         " (" + world.patience + ")";
}

// A connection to rank 0, which has sent its answer and, on one machine, a file descriptor.
Socket join(const World& world, const MeetingPoint& point, double timeout, int& fd) {
  const auto end = after(timeout);
  const std::string self = "rank " + std::to_string(world.rank);
  Socket rank0;
  std::optional<Answer> reply;
  std::string others;  // who uses the meeting point instead
  bool again = true;
  while (again) {
    rank0 = reach(world, point, end);
    if (!rank0)
      throw RanksMissing(waited_for_rank0(world, point, timeout) + others + advice(world));
    // Rank 0 itself reports missing ranks, and its exit is noticed here: wait a little longer.
    if (!wait_readable(rank0.fd(), after(timeout + 1)))
      throw RanksMissing(self + " waited " + seconds_text(timeout) + " for the other ranks" +
                         advice(world));
    reply = receive(rank0, fd);
    const bool other_job = reply && reply->verdict == Verdict::other_job;
    // Perhaps a previous attempt of the same job, about to end.
    if (other_job) {
      others = ", where another job's processes meet";
      if (world.launchers) others += ", or this one's without --max-restarts or --nnodes MIN:MAX";
      pause_a_little();
    }
    again = other_job || (reply && reply->verdict == Verdict::too_slow);
  }
  if (!reply) throw Rank0Ended(self + ": rank 0 ended before all ranks connected" + advice(world));
  if (reply->verdict == Verdict::training)
    throw RunIsTraining("node " + std::to_string(world.node) + " (" + world.machine +
                        ") waits to join at the run's next restart");
  if (reply->verdict == Verdict::given_up) throw RanksMissing(refusal(world, *reply));
  if (reply->verdict != Verdict::welcome) throw UserError(refusal(world, *reply));
  return rank0;
}

}  // namespace

int meet_peers(const World& world, double timeout, int region_size) {
  if (world.master.empty())
    throw UserError("the environment (" + world.variables +
                    ") doesn't say which job this process belongs to; give -n to start the "
                    "processes here");
  const auto point = meeting_point_here(world);
  int fd = -1;
  if (world.rank > 0) {
    join(world, *point, timeout, fd);
    if (fd < 0)
      throw RunError("rank " + std::to_string(world.rank) + ": rank 0 sent no memory to share");
    return fd;
  }
  const std::vector<Socket> peers =
      RendezvousServer(world, *point, listen_at(world, *point, timeout), timeout).run();
  const SharedRegion region = SharedRegion::create(region_size ? region_size : world.size);
  for (int r = 1; r < world.size; ++r)
    answer(peers[size_t(r)], {.verdict = Verdict::welcome}, region.fd());
  fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail_to_meet("dup");
  return fd;
}

std::vector<Socket> meet_over_network(const World& world, double timeout, const Quorum* quorum) {
  if (world.host.empty())
    throw UserError("the processes are on several machines (" + std::to_string(world.local_size) +
                    " of " + std::to_string(world.size) +
                    " here): set MASTER_ADDR to the machine of rank 0, the same for all ranks");
  const auto point = meeting_point_of_network(world);
  std::vector<Socket> peers;
  if (world.rank > 0) {
    int none = -1;
    peers.push_back(join(world, *point, timeout, none));
  } else {
    peers =
        RendezvousServer(world, *point, listen_at(world, *point, timeout), timeout, quorum).run();
    for (const Socket& peer : peers)
      if (peer) answer(peer, {.verdict = Verdict::welcome});
  }
  for (const Socket& peer : peers)
    if (peer) send_at_once(peer);
  return peers;
}

std::vector<Socket> meet_pairwise(const World& world, Socket listener,
                                  const std::vector<std::string>& addresses,
                                  const std::vector<int>& ports, double timeout) {
  std::vector<Socket> peers(size_t(world.size));
  for (int r = 0; r < world.rank; ++r) {
    const auto point = meeting_point_at(addresses[size_t(r)], ports[size_t(r)]);
    peers[size_t(r)] = reach(world, *point, after(timeout));
    if (!peers[size_t(r)])
      throw UserError("rank " + std::to_string(world.rank) + " can't reach " + world.name_of(r) +
                      " at " + point->name() + " within " + seconds_text(timeout) +
                      " (--timeout); is a firewall blocking the connection?");
  }
  const auto point = meeting_point_at("", 0);
  std::vector<Socket> above = RendezvousServer(world, *point, std::move(listener), timeout).run();
  for (size_t r = 0; r < peers.size(); ++r)
    if (above[r]) peers[r] = std::move(above[r]);
  for (const Socket& peer : peers)
    if (peer) send_at_once(peer);
  return peers;
}

}  // namespace bv
