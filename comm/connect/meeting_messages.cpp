#include "comm/connect/meeting_messages.h"

#include <unistd.h>

#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"

namespace bv {

MeetingClock::time_point after(double seconds) {
  return MeetingClock::now() +
         std::chrono::duration_cast<MeetingClock::duration>(std::chrono::duration<double>(seconds));
}
double seconds_since(MeetingClock::time_point start) {
  return std::chrono::duration<double>(MeetingClock::now() - start).count();
}

bool WaitingLine::is_due() const {
  constexpr double patience = 5;  // seconds
  return world_.launchers && !said_ && seconds_since(begin_) > patience;
}
void WaitingLine::say(const std::string& names) {
  said_ = true;
  print_error_line("waiting for " + names + ", up to " + world_.patience);
}

std::string seconds_text(double timeout) { return format_number(timeout, 6) + " s"; }

// A launcher blocks the stop signals instead of catching them, so they stay pending.
void heed_stop_signal() {
  if (stop_signal()) _exit(128 + stop_signal());
  sigset_t pending;
  if (sigpending(&pending) != 0) return;
  for (const int number : stop_signals())
    if (sigismember(&pending, number) == 1) _exit(128 + number);
}
void wait_for_events(std::vector<pollfd>& items) {
  if (wait_for_files(items, 50) < 0)
    for (pollfd& item : items) item.revents = 0;
  heed_stop_signal();
}
void pause_a_little() {
  pause_ms(10);
  heed_stop_signal();
}

void fail_to_meet(const char* what) {
  throw RunError(std::string("the processes can't connect: ") + what + ": " + std::strerror(errno));
}

void answer(const Socket& peer, const Answer& with, int fd) {
  AnswerMessage message(with);
  if (fd >= 0) {
    cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  } else {
    message.header.msg_controllen = 0;
  }
  // If the peer is gone, the first barrier reports it.
  if (sendmsg(peer.fd(), &message.header, MSG_NOSIGNAL) < 0) return;
}

std::string advice(const World& world) {
  if (world.launched)
    return "; start ./launcher on every node with its own --node-rank and the same " +
           text_of(shape_of(world), shape_of(world)) + ", --master-addr and --master-port";
  return " (" + world.variables +
         " in the environment set the ranks, --timeout how long to wait for them); start "
         "every rank, or have them started here by " +
         command_to_start_here(world.size);
}

std::string nodes_text(int least, int nodes) {
  const bool all = least == 0 || least == nodes;
  return "--nnodes " + (all ? "" : std::to_string(least) + ":") + std::to_string(nodes);
}

std::string text_of(const Shape& shape, const Shape& beside) {
  const bool differ = shape.max_restarts != beside.max_restarts;
  return nodes_text(shape.least_nodes, shape.nodes) + " -n " + std::to_string(shape.local_size) +
         (differ ? " --max-restarts " + std::to_string(shape.max_restarts) : "");
}

}  // namespace bv
