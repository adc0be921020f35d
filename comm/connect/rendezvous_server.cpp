#include "comm/connect/rendezvous_server.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr size_t max_guests = 512;  // pending peers; more wait in the backlog

}  // namespace

std::string node_of(const Handshake& handshake) {
  const std::string machine(handshake.machine.data(), strnlen(handshake.machine.data(), 64));
  return "node " + std::to_string(handshake.node) + " (" + printable(machine) + ")";
}

bool same_job(const World& world, const Handshake& handshake) {
  return handshake.job == job_of(world) && handshake.rank > world.rank;
}

bool same_shape(const World& world, const Handshake& handshake) {
  return !world.launched || handshake.shape == shape_of(world);
}

Answer shape_answer(const World& world, Verdict verdict) {
  return {.verdict = verdict, .shape = shape_of(world)};
}

Socket listen_at(const World& world, const MeetingPoint& point, double timeout) {
  const auto end = after(std::min(timeout, 2.0));
  while (true) {
    Socket listener = point.bound();
    if (listener) {
      if (listen(listener.fd(), std::max(world.size, SOMAXCONN)) != 0) fail_to_meet("listen");
      return listener;
    }
    if (errno != EADDRINUSE) fail_to_meet("bind");
    if (MeetingClock::now() >= end && world.launched)
      throw UserError("port " + std::to_string(world.meeting_port()) + " of " + world.machine +
                      " is taken, by another run or a second launcher with --node-rank 0; give "
                      "each run its own --master-port");
    if (MeetingClock::now() >= end)
      throw UserError("another run has the same meeting point " + point.name() +
                      ", or two processes are rank 0 (" + world.variables +
                      " in the environment): give each run its own");
    pause_a_little();
  }
}

// ---- a pending peer -----------------------------------------------------------------------------

bool PendingPeer::proceed(bool readable, std::string& reason) {
  if (MeetingClock::now() >= end_) {
    if (handshake_.complete()) answer(socket_, {.verdict = Verdict::too_slow});
    return false;
  }
  if (!readable) return true;
  if (handshake_.complete()) return receive_proof(reason);
  if (!handshake_.receive(fd()) || !handshake_.is_ours()) return false;
  // A Handshake of another version may be shorter.
  const bool other =
      handshake_.has(sizeof(Preamble)) && handshake().preamble.version != Preamble::our_version;
  return (!handshake_.complete() && !other) || challenge(reason);
}

bool PendingPeer::challenge(std::string& reason) {
  const Preamble& theirs = handshake().preamble;
  challenge_ = challenge_of(world_, handshake());
  if (theirs.version != Preamble::our_version)
    reason = "it runs another version of this program";
  else if (theirs.has_secret != challenge_.preamble.has_secret)
    reason = "BAREVISION_SECRET is set on one side only";
  return send_message(fd(), challenge_) && reason.empty();
}

bool PendingPeer::receive_proof(std::string& reason) {
  if (!proof_.receive(fd())) return false;
  if (!proof_.complete()) return true;
  if (equal(proof_.value.proof, proof_of_peer(world_, handshake(), challenge_.preamble.nonce)))
    return true;
  reason = "it has another BAREVISION_SECRET";
  return false;
}

// ---- the server ---------------------------------------------------------------------------------

RendezvousServer::RendezvousServer(const World& world, const MeetingPoint& point, Socket listener,
                                   double timeout, const Quorum* quorum)
    : world_(world),
      point_(point),
      timeout_(timeout),
      quorum_(quorum),
      listener_(std::move(listener)),
      peers_(size_t(world.size)) {}

std::vector<Socket> RendezvousServer::run() {
  const auto end = after(timeout_);
  WaitingLine line(world_);
  while (!complete(end)) {
    if (line.is_due() && !has_quorum()) line.say(join(names_of_nodes(awaited()), ", "));
    if (MeetingClock::now() >= end) give_up();
    look();
  }
  return std::move(peers_);
}

bool RendezvousServer::complete(MeetingClock::time_point end) const {
  if (awaited().empty()) return true;
  return has_quorum() &&
         (MeetingClock::now() >= end || seconds_since(last_came_) >= quorum_->last_call);
}

bool RendezvousServer::has_quorum() const {
  return quorum_ && world_.size - int(missing().size()) >= quorum_->least;
}

void RendezvousServer::give_up() {
  const std::string why = late() + advice(world_);
  Answer to_all{.verdict = Verdict::given_up};
  why.copy(to_all.reason.data(), to_all.reason.size() - 1);
  for (const Socket& peer : peers_)
    if (peer) answer(peer, to_all);
  throw RanksMissing(why);
}

void RendezvousServer::look() {
  std::vector<pollfd> items{{guests_.size() < max_guests ? listener_.fd() : -1, POLLIN, 0}};
  for (const PendingPeer& guest : guests_) items.push_back({guest.fd(), POLLIN, 0});
  for (const Socket& peer : peers_) items.push_back({peer.fd(), POLLIN, 0});
  wait_for_events(items);
  // A connected rank sends nothing more: a readable socket means that the process has ended.
  for (size_t r = 0; r < peers_.size(); ++r)
    if (items[1 + guests_.size() + r].revents) peers_[r] = Socket();
  std::vector<PendingPeer> left;
  for (size_t i = 0; i < guests_.size(); ++i) {
    std::string reason;
    if (!guests_[i].proceed(items[1 + i].revents != 0, reason))
      refused_ = reason.empty() ? refused_ : reason;
    else if (guests_[i].has_proved())
      seat(guests_[i]);
    else
      left.push_back(std::move(guests_[i]));
  }
  guests_ = std::move(left);
  if (items[0].revents) accept_all();
}

void RendezvousServer::accept_all() {
  while (guests_.size() < max_guests) {
    Socket made(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made) return;
    if (point_.admits(made.fd())) guests_.emplace_back(world_, std::move(made));
  }
}

void RendezvousServer::seat(PendingPeer& guest) {
  const Handshake& handshake = guest.handshake();
  if (!same_job(world_, handshake)) return refuse(guest, Verdict::other_job, "");
  if (!same_shape(world_, handshake))
    return refuse(guest, Verdict::other_size,
                  node_of(handshake) + " has " + text_of(handshake.shape, shape_of(world_)) +
                      ", node 0 has " + text_of(shape_of(world_), handshake.shape));
  if (handshake.size != world_.size || handshake.rank >= world_.size)
    return refuse(guest, Verdict::other_size, "");
  Socket& peer = peers_[size_t(handshake.rank)];
  if (peer)
    return refuse(guest, Verdict::rank_taken,
                  world_.launched ? node_of(handshake) + " connected twice" : std::string());
  peer = std::move(guest.socket());
  last_came_ = MeetingClock::now();
}

void RendezvousServer::refuse(PendingPeer& guest, Verdict verdict, const std::string& why) {
  answer(guest.socket(), shape_answer(world_, verdict));
  if (!why.empty()) refused_ = why;
}

std::vector<int> RendezvousServer::missing() const {
  std::vector<int> ranks;
  for (int r = world_.rank + 1; r < world_.size; ++r)
    if (!peers_[size_t(r)]) ranks.push_back(r);
  return ranks;
}

// The missing ranks that the meeting waits for.
std::vector<int> RendezvousServer::awaited() const {
  std::vector<int> ranks = missing();
  if (quorum_)
    std::erase_if(ranks, [&](int r) { return std::ranges::count(quorum_->expected, r) == 0; });
  return ranks;
}

// "rank 0 waited 10 s for rank 2, 3", or by nodes
std::string RendezvousServer::late() const {
  const std::vector<int> ranks = missing();
  const std::string turned_away =
      refused_.empty() ? "" : "; a process that connected was refused: " + refused_;
  if (world_.launched && world_.nodes > 1) return late_nodes(ranks) + turned_away;
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return "rank " + std::to_string(world_.rank) + " waited " + seconds_text(timeout_) +
         " for rank " + join(names, ", ") + turned_away;
}

bool RendezvousServer::nodes_vary() const {
  return world_.launchers && world_.least_nodes < world_.nodes;
}

// "node 1 (ranks 2-3)", or "node 1" if nodes have no fixed ranks
std::vector<std::string> RendezvousServer::names_of_nodes(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  for (int node = 0; node < world_.nodes; ++node) {
    std::vector<int> of_node;
    for (int rank = node * world_.local_size; rank < (node + 1) * world_.local_size; ++rank)
      if (std::ranges::count(ranks, world_.launchers ? node : rank) > 0) of_node.push_back(rank);
    if (!of_node.empty())
      names.push_back("node " + std::to_string(node) +
                      (nodes_vary() ? "" : " (" + list_of_ranks(of_node) + ")"));
  }
  return names;
}

// "node 1 (ranks 2-3) has not connected within 10 s (--timeout)"; if the number of nodes may vary,
// "node 1, node 2 have not connected within 10 s (...), and --nnodes 2:3 needs one more"
std::string RendezvousServer::late_nodes(const std::vector<int>& ranks) const {
  const std::vector<std::string> names = names_of_nodes(ranks);
  const int lacking = world_.least_nodes - (world_.size - int(ranks.size()));
  return join(names, ", ") + (names.size() == 1 ? " has" : " have") + " not connected within " +
         seconds_text(timeout_) + " (" + world_.patience + ")" +
         (nodes_vary() ? ", and " + nodes_text(world_.least_nodes, world_.nodes) + " needs " +
                             (lacking == 1 ? "one" : std::to_string(lacking)) + " more"
                       : "");
}

}  // namespace bv
