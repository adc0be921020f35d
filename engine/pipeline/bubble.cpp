#include "engine/pipeline/bubble.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace bv {
namespace {

// What is sent, told in the same words by both sides: the pass, the part that made it, its
// micro-batch; and when that side has come to the exchange.
struct Posted {
  bool forward;
  int part, micro;
  double at;
};

// From one stage to another: the n-th send meets the n-th receive.
struct Link {
  std::vector<Posted> sends, receives;
};

class Simulation {
 public:
  Simulation(const PipelineShape& shape, std::span<const PartTime> parts)
      : shape_(shape), parts_(parts) {
    for (int s = 0; s < shape.stages; ++s)
      stages_.push_back({.tasks = schedule(shape, s), .rounds = rounds(shape, s)});
    timeline_.stages.resize(stages_.size());
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < shape_.stages; ++s) moved |= advance(s);
    }
    for (int s = 0; s < shape_.stages; ++s)
      if (stage(s).next <= stage(s).tasks.size())
        throw std::logic_error("pipeline: stage " + std::to_string(s) + " waits for ever before " +
                               std::to_string(stage(s).next) + ". task");
    for (const Stage& s : stages_) timeline_.length = std::max(timeline_.length, s.now);
    return std::move(timeline_);
  }

 private:
  struct Waiting {  // for the other side of a message
    const std::vector<Posted>* other;
    size_t index;
    Posted own;
  };
  struct Stage {
    std::vector<Task> tasks;
    std::vector<Round> rounds;
    size_t next = 0;  // round, and the task after it
    bool posted = false;
    std::vector<Waiting> waiting = {};
    double now = 0;
  };

  Stage& stage(int s) { return stages_[static_cast<size_t>(s)]; }

  void post(int s) {
    Stage& own = stage(s);
    own.posted = true;
    for (const Message& m : own.rounds[own.next]) {
      Link& link = links_[m.send ? std::pair{s, m.peer} : std::pair{m.peer, s}];
      const int part = shape_.part_of(s, m.task.chunk);
      const Posted posted{m.task.forward, m.send ? part : part + (m.task.forward ? -1 : 1),
                          m.task.micro, own.now};
      auto& side = m.send ? link.sends : link.receives;
      own.waiting.push_back({m.send ? &link.receives : &link.sends, side.size(), posted});
      side.push_back(posted);
    }
  }

  // Ends the exchange that stage s is in, if all its messages have met, and runs the next task.
  bool advance(int s) {
    Stage& own = stage(s);
    if (own.next > own.tasks.size()) return false;
    if (!own.posted) post(s);
    double met = own.now;
    for (const Waiting& w : own.waiting) {
      if (w.index >= w.other->size()) return false;
      const Posted& other = (*w.other)[w.index];
      if (other.forward != w.own.forward || other.part != w.own.part || other.micro != w.own.micro)
        throw std::logic_error("pipeline: a message of stage " + std::to_string(s) +
                               " meets another one's receiver");
      met = std::max(met, other.at);
    }
    own.now = met;
    own.waiting.clear();
    own.posted = false;
    if (own.next < own.tasks.size()) execute(s, own.tasks[own.next]);
    ++own.next;
    return true;
  }

  void execute(int s, const Task& task) {
    const PartTime& part = parts_[static_cast<size_t>(shape_.part_of(s, task.chunk))];
    const double took = task.forward ? part.forward : part.backward;
    double& now = stage(s).now;
    timeline_.stages[static_cast<size_t>(s)].push_back({task, now, now + took});
    timeline_.busy += took;
    now += took;
  }

  PipelineShape shape_;
  std::span<const PartTime> parts_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, Link> links_;  // nodes stay where they are
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const PipelineShape& shape, std::span<const PartTime> parts) {
  return Simulation(shape, parts).run();
}

}  // namespace bv
