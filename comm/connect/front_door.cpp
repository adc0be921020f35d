#include "comm/connect/front_door.h"

#include <utility>

#include "base/error.h"
#include "base/wait.h"
#include "comm/connect/meeting_messages.h"

namespace bv {
namespace {

constexpr double patience = 0.5;   // seconds that a look may take
constexpr size_t max_guests = 64;  // further ones wait in the backlog
constexpr int tick_ms = 20;

}  // namespace

FrontDoor::FrontDoor(const World& world, std::string why_closed)
    : world_(world), why_closed_(std::move(why_closed)), point_(meeting_point_of_network(world_)) {}

void FrontDoor::look() {
  if (!listener_) listener_ = point_->bound();
  if (!listener_ || listen(listener_.fd(), SOMAXCONN) != 0) return;
  const auto end = after(patience);
  for (accept_all(); !guests_.empty() && MeetingClock::now() < end; accept_all()) {
    std::vector<pollfd> items;
    for (const PendingPeer& guest : guests_) items.push_back({guest.fd(), POLLIN, 0});
    if (wait_for_files(items, tick_ms) < 0) return;
    std::vector<PendingPeer> left;
    for (size_t i = 0; i < guests_.size(); ++i) {
      std::string ignored;
      if (!guests_[i].proceed(items[i].revents != 0, ignored)) continue;
      if (guests_[i].has_proved())
        answer_to(guests_[i]);
      else
        left.push_back(std::move(guests_[i]));
    }
    guests_ = std::move(left);
  }
}

void FrontDoor::accept_all() {
  while (guests_.size() < max_guests) {
    Socket made(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made) return;
    guests_.emplace_back(world_, std::move(made));
  }
}

void FrontDoor::answer_to(PendingPeer& guest) {
  const Handshake& handshake = guest.handshake();
  if (!same_job(world_, handshake)) {
    answer(guest.socket(), {.verdict = Verdict::other_job});
    return;
  }
  if (!same_shape(world_, handshake)) {
    answer(guest.socket(), shape_answer(world_, Verdict::other_size));
    return;
  }
  Answer to_guest{.verdict = why_closed_.empty() ? Verdict::training : Verdict::too_late};
  const std::string why = node_of(handshake) + " connected after the start" + why_closed_;
  why.copy(to_guest.reason.data(), to_guest.reason.size() - 1);
  answer(guest.socket(), to_guest);
  if (!why_closed_.empty() || !waiting_.insert(handshake.node).second) return;
  print_error_line(why + "; it joins at the next restart");
}

}  // namespace bv
