// The listening side of a rendezvous: accepts peers that prove that they belong, by rank. Strangers
// may connect, stay silent or send nonsense: every connection has one second for its handshake, one
// poll serves all, and all share one deadline.
#pragma once
#include <string>
#include <vector>

#include "comm/connect/meeting_messages.h"
#include "comm/connect/meeting_point.h"

namespace bv {

// Waits a little for a previous run to free the address.
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

// Waits for all ranks above world.rank.
class RendezvousServer {
 public:
  RendezvousServer(const World&, const MeetingPoint&, Socket listener, double timeout);
  // Returns the sockets by rank. Throws UserError that names the missing ranks when time is up.
  std::vector<Socket> run();

 private:
  void look();
  [[noreturn]] void give_up();
  void accept_all();
  void seat(PendingPeer&);
  void refuse(PendingPeer&, Verdict, const std::string& why);
  std::vector<int> missing() const;
  std::string late() const;

  const World& world_;
  const MeetingPoint& point_;
  double timeout_;
  Socket listener_;
  std::vector<PendingPeer> guests_;
  std::vector<Socket> peers_;  // by rank
  std::string refused_;        // why the last peer was refused
};

}  // namespace bv
