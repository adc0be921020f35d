#include "comm/local/mailboxes.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace bv {
namespace {

constexpr int spins = 300;  // about 15 us, the cost of falling asleep and waking

// Writes as many of n bytes as fit; returns their number.
size_t put(Mailbox& box, const std::byte* from, size_t n) {
  const uint64_t written = box.written.load(std::memory_order_relaxed);
  n = std::min<size_t>(n, Mailbox::capacity - (written - box.read.load(std::memory_order_acquire)));
  const size_t at = written % Mailbox::capacity, first = std::min(n, Mailbox::capacity - at);
  std::copy_n(from, first, box.ring + at);
  std::copy_n(from + first, n - first, box.ring);
  box.written.store(written + n, std::memory_order_release);
  return n;
}

// Reads as many of n bytes as have arrived; returns their number.
size_t take(Mailbox& box, std::byte* to, size_t n) {
  const uint64_t read = box.read.load(std::memory_order_relaxed);
  n = std::min<size_t>(n, box.written.load(std::memory_order_acquire) - read);
  const size_t at = read % Mailbox::capacity, first = std::min(n, Mailbox::capacity - at);
  std::copy_n(box.ring + at, first, to);
  std::copy_n(box.ring, n - first, to + first);
  box.read.store(read + n, std::memory_order_release);
  return n;
}

// An exchange's messages to or from one peer, in order.
class Lane {
 public:
  // peer: its rank in the group. name: its rank in the region, for messages.
  Lane(Mailbox& box, int peer, int name, bool sends)
      : box_(box), peer_(peer), name_(name), sends_(sends) {}

  bool is(int peer, bool sends) const { return peer_ == peer && sends_ == sends; }
  int peer() const { return peer_; }
  void add(const Transfer& t) { queue_.push_back(&t); }
  bool finished() const { return next_ == queue_.size(); }
  // Whether nothing can move before the peer acts.
  bool waits() const {
    if (finished()) return false;
    const uint64_t on_the_way =
        box_.written.load(std::memory_order_acquire) - box_.read.load(std::memory_order_acquire);
    return on_the_way == (sends_ ? Mailbox::capacity : 0);
  }
  // Moves bytes. Returns whether any moved.
  bool advance() {
    bool moved = false;
    while (!finished()) {
      const Transfer& t = *queue_[next_];
      const size_t n = done_ < sizeof size_ ? move_size(t) : move_data(t);
      if (n == 0 && done_ < sizeof size_ + t.bytes) return moved;
      moved |= n > 0;
      done_ += n;
      if (done_ == sizeof size_ + t.bytes) done_ = 0, ++next_;
    }
    return moved;
  }

 private:
  size_t move_size(const Transfer& t) {
    auto* const bytes = reinterpret_cast<std::byte*>(&size_);
    const size_t left = sizeof size_ - done_;
    if (sends_) {
      size_ = t.bytes;
      return put(box_, bytes + done_, left);
    }
    const size_t n = take(box_, bytes + done_, left);
    if (n == left && size_ != t.bytes)
      throw std::runtime_error("rank " + std::to_string(name_) + " sent " + std::to_string(size_) +
                               " bytes instead of " + std::to_string(t.bytes) +
                               "; start all ranks with the same program and options");
    return n;
  }
  size_t move_data(const Transfer& t) {
    const size_t at = done_ - sizeof size_;
    std::byte* const data = static_cast<std::byte*>(t.data) + at;
    return sends_ ? put(box_, data, t.bytes - at) : take(box_, data, t.bytes - at);
  }

  Mailbox& box_;
  int peer_, name_;
  bool sends_;
  std::vector<const Transfer*> queue_;
  size_t next_ = 0;
  uint64_t size_ = 0;  // of the message in flight; sent ahead of its bytes
  size_t done_ = 0;    // bytes of that message, including its size
};

}  // namespace

void Mailboxes::exchange(std::span<const Transfer> transfers) {
  std::vector<Lane> lanes;
  for (const Transfer& t : transfers) {
    const auto lane = std::find_if(lanes.begin(), lanes.end(),
                                   [&](const Lane& l) { return l.is(t.peer, t.send); });
    if (lane != lanes.end()) {
      lane->add(t);
      continue;
    }
    Mailbox& mailbox = t.send ? box(group_.rank, t.peer) : box(t.peer, group_.rank);
    lanes.emplace_back(mailbox, t.peer, group_.members[t.peer], t.send).add(t);
  }
  std::atomic<uint32_t>& bell = members_[group_.rank].bell;
  PeerWait peers(group_);
  while (true) {
    const uint32_t rung = bell.load(std::memory_order_acquire);
    bool moved = false;
    for (Lane& lane : lanes) {
      if (!lane.advance()) continue;
      moved = true;
      members_[lane.peer()].bell.fetch_add(1, std::memory_order_release);
      futex_wake_all(members_[lane.peer()].bell);
    }
    if (std::all_of(lanes.begin(), lanes.end(), [](const Lane& l) { return l.finished(); })) return;
    if (moved) {
      peers.start_over();
      continue;
    }
    const auto still = [&] { return bell.load(std::memory_order_acquire) == rung; };
    for (int i = 0; i < spins && still(); ++i) _mm_pause();
    if (!still()) continue;
    futex_wait(bell, rung, watch_tick_ms);
    if (!still()) continue;
    const auto awaited = [&](int member) {
      return std::any_of(lanes.begin(), lanes.end(),
                         [&](const Lane& l) { return l.peer() == member && l.waits(); });
    };
    peers.look(awaited, group_.rank);
  }
}

}  // namespace bv
