// Messages between the ranks of one machine. Each ordered pair of ranks has a ring buffer in the
// shared memory, which carries a stream of messages, each as its size and then its bytes. An
// exchange moves all its messages concurrently, so their order can't block it.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "comm/local/rank_barrier.h"

namespace bv {

// Shared, zero at first. One rank writes, one reads.
struct alignas(64) Mailbox {
  static constexpr size_t capacity = 1 << 17;  // stays in the L2 cache

  std::atomic<uint64_t> written;           // bytes, since the run began
  alignas(64) std::atomic<uint64_t> read;  // how many of these have been read
  alignas(64) std::byte ring[capacity];
};

class Mailboxes {
 public:
  // boxes [from, to]; members: words of the group's members, whose bells exchange() rings.
  Mailboxes(const RankGroup& group, Mailbox* boxes, MemberWords* members)
      : group_(group), boxes_(boxes), members_(members) {}
  static size_t bytes(int ranks) { return size_t(ranks) * size_t(ranks) * sizeof(Mailbox); }
  // Returns once all incoming messages are received and all outgoing ones are in the ring buffers.
  // Throws std::runtime_error if a message's size differs from what its receiver expects.
  void exchange(std::span<const Transfer>);

 private:
  Mailbox& box(int from, int to) { return boxes_[size_t(from) * group_.members.size() + to]; }

  const RankGroup& group_;
  Mailbox* boxes_;
  MemberWords* members_;
};

}  // namespace bv
