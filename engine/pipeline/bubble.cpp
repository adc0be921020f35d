#include "engine/pipeline/bubble.h"

#include <algorithm>
#include <array>

namespace bv {
namespace {

// When each side of a message is ready to exchange it, and when its receiver may read it.
struct Meeting {
  double sender = 0, receiver = 0, arrived = 0;
};

class Steps {
 public:
  Steps(const PipelineShape& shape, std::span<const PartTime> parts)
      : shape_(shape), parts_(parts), meetings_(2 * parts.size() * micro_batches()) {
    for (int s = 0; s < shape.stages; ++s) {
      tasks_.push_back(schedule(shape, s));
      rounds_.push_back(rounds(shape, s));
    }
  }

  // Returns the time at which the stage ends, given the times at which other stages are ready for
  // each message, and stores its own.
  double length(int stage) {
    const std::vector<Task>& tasks = tasks_[static_cast<size_t>(stage)];
    const std::vector<Round>& exchanges = rounds_[static_cast<size_t>(stage)];
    std::array<double, 2> over{};  // end of the last exchange: gradients, activations
    double now = 0;
    for (size_t i = 0; i <= tasks.size(); ++i) {
      const std::array<double, 2> begin{std::max(now, over[0]), std::max(now, over[1])};
      for (const Message& m : exchanges[i]) {
        Meeting& meeting = meeting_of(m.task, stage, m.send);
        double& own = m.send ? meeting.sender : meeting.receiver;
        changed |= own != begin[m.task.forward];
        own = begin[m.task.forward];
        over[m.task.forward] = std::max({over[m.task.forward], meeting.sender, meeting.receiver});
      }
      for (const Message& m : exchanges[i])
        if (!m.send) meeting_of(m.task, stage, false).arrived = over[m.task.forward];
      if (i == tasks.size()) break;
      const Task& task = tasks[i];
      const int part = shape_.part_of(stage, task.chunk);
      if (task.forward ? part > 0 : part + 1 < shape_.parts())
        now = std::max(now, meeting_of(task, stage, false).arrived);
      const PartTime& took = parts_[static_cast<size_t>(part)];
      now += task.forward ? took.forward : took.backward;
    }
    return now;
  }
  bool changed = false;

 private:
  size_t micro_batches() const { return static_cast<size_t>(shape_.micro_batches); }
  // Both sides identify a message by its pass, the part that made it and its micro-batch.
  Meeting& meeting_of(const Task& t, int stage, bool send) {
    const int part = shape_.part_of(stage, t.chunk),
              made = send ? part : part + (t.forward ? -1 : 1);
    return meetings_[(2 * static_cast<size_t>(made) + t.forward) * micro_batches() +
                     static_cast<size_t>(t.micro)];
  }

  PipelineShape shape_;
  std::span<const PartTime> parts_;
  std::vector<std::vector<Task>> tasks_;
  std::vector<std::vector<Round>> rounds_;
  std::vector<Meeting> meetings_;
};

}  // namespace

// Repeats the pass over the stages until the times, which only grow, stop changing.
double bubble(const PipelineShape& shape, std::span<const PartTime> parts) {
  Steps steps(shape, parts);
  double length = 0, busy = 0;
  do {
    steps.changed = false;
    for (int s = 0; s < shape.stages; ++s) length = std::max(length, steps.length(s));
  } while (steps.changed);
  for (const PartTime& part : parts) busy += shape.micro_batches * (part.forward + part.backward);
  return length > 0 ? 1 - busy / (length * shape.stages) : 0;
}

}  // namespace bv
