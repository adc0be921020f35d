// The listening side of a rendezvous: accepts peers that prove they belong to the run. Strangers
// may connect, stay silent or send nonsense: every connection has one second for its handshake, one
// poll serves all, and all share one deadline.
#pragma once
#include <string>
#include <vector>

#include "comm/connect/meeting_messages.h"
#include "comm/connect/meeting_point.h"
#include "comm/connect/rendezvous.h"

namespace bv {

// Waits up to 2 s for a previous run to free the address.
Socket listen_at(const World&, const MeetingPoint&, double timeout);

// A connection during its handshake.
class PendingPeer {
 public:
  PendingPeer(const World& world, Socket socket) : world_(world), socket_(std::move(socket)) {}
  int fd() const { return socket_.fd(); }
  const Handshake& handshake() const { return handshake_.value; }
  bool has_proved() const { return proof_.complete(); }
  // Reads what has arrived and answers a Handshake. False: the peer has ended, is a stranger, or
  // its second is over; `reason` is set if the connection came from this program.
  bool proceed(bool readable, std::string& reason);
  Socket& socket() { return socket_; }

 private:
  static constexpr double seconds = 1;
  bool challenge(std::string& reason);
  bool receive_proof(std::string& reason);

  const World& world_;
  Socket socket_;
  MeetingClock::time_point end_ = after(seconds);
  Incoming<Handshake> handshake_;
  Challenge challenge_;
  Incoming<Proof> proof_;
};

// "node 1 (HOST)"
std::string node_of(const Handshake&);
// same_job: whether it comes from the same job and a rank above world.rank. same_shape: under our
// launcher, whether it has the same numbers of nodes, processes and restarts.
bool same_job(const World&, const Handshake&);
bool same_shape(const World&, const Handshake&);
Answer shape_answer(const World&, Verdict);

// Waits for all ranks above world.rank, or for a quorum of them.
class RendezvousServer {
 public:
  RendezvousServer(const World&, const MeetingPoint&, Socket listener, double timeout,
                   const Quorum* = nullptr);
  // Returns the sockets by rank. On timeout, throws RanksMissing, which names the missing ranks.
  std::vector<Socket> run();

 private:
  bool complete(MeetingClock::time_point end) const;
  bool has_quorum() const;
  void look();
  [[noreturn]] void give_up();
  void accept_all();
  void seat(PendingPeer&);
  void refuse(PendingPeer&, Verdict, const std::string& why);
  std::vector<int> missing() const;
  std::vector<int> awaited() const;
  std::string late() const;
  bool nodes_vary() const;
  std::vector<std::string> names_of_nodes(const std::vector<int>& ranks) const;
  std::string late_nodes(const std::vector<int>& ranks) const;

  const World& world_;
  const MeetingPoint& point_;
  double timeout_;
  const Quorum* quorum_;
  Socket listener_;
  std::vector<PendingPeer> guests_;
  std::vector<Socket> peers_;  // by rank
  MeetingClock::time_point last_came_ = MeetingClock::now();
  std::string refused_;  // why the last peer was refused
};

}  // namespace bv
