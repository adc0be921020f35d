#include "tests/engine/pipeline/simulation.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace bv::test {
namespace {

// A message as both sides identify it (the pass, the part that made it, its micro-batch), and the
// time when this side reached the exchange.
struct Posted {
  bool forward;
  int part, micro;
  double at;
};

// A channel from one stage to another: the n-th send meets the n-th receive.
struct Link {
  std::vector<Posted> sends, receives;
};

class Simulation {
 public:
  Simulation(const PipelineShape& shape, std::span<const PartTime> parts, Exchanging how)
      : shape_(shape), parts_(parts), how_(how) {
    for (int s = 0; s < shape.stages; ++s)
      stages_.push_back({.tasks = schedule(shape, s), .rounds = rounds(shape, s)});
    timeline_.stages.resize(stages_.size());
  }

  Timeline run() {
    for (int s = 0; s < shape_.stages; ++s) come_to_round(s);
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < shape_.stages; ++s) moved |= advance(s);
    }
    for (int s = 0; s < shape_.stages; ++s)
      if (stage(s).next < stage(s).tasks.size() || !all_over(stage(s)))
        throw std::logic_error("pipeline: stage " + std::to_string(s) +
                               " waits for ever before task " + std::to_string(stage(s).next));
    for (const Stage& s : stages_) timeline_.length = std::max(timeline_.length, s.now);
    return std::move(timeline_);
  }

 private:
  struct Waiting {  // a message whose other side may not have been posted
    const std::vector<Posted>* other;
    size_t index;
    Posted own;
  };
  // Messages exchanged together on a channel.
  struct Exchange {
    Round messages;
    double asked;  // when the stage reached it
    bool begun = false;
    std::vector<Waiting> waiting = {};
  };
  struct Channel {
    std::deque<Exchange> queue;
    double over = 0;  // end of the last exchange
  };
  struct Stage {
    std::vector<Task> tasks;
    std::vector<Round> rounds;
    size_t next = 0;  // the next task, whose round has been started
    std::array<Channel, 2> channels = {};
    std::map<std::tuple<bool, int, int>, double> received = {};  // time of arrival, by reading task
    double now = 0;
  };

  Stage& stage(int s) { return stages_[static_cast<size_t>(s)]; }
  static bool all_over(const Stage& s) {
    return std::ranges::all_of(s.channels, [](const Channel& c) { return c.queue.empty(); });
  }
  static std::tuple<bool, int, int> words_of(const Task& t) {
    return {t.forward, t.chunk, t.micro};
  }

  void come_to_round(int s) {
    Stage& own = stage(s);
    std::array<Round, 2> by_channel;
    for (const Message& m : own.rounds[own.next])
      by_channel[how_ == Exchanging::overlapped && !m.task.forward].push_back(m);
    for (size_t c = 0; c < by_channel.size(); ++c)
      if (!by_channel[c].empty())
        own.channels[c].queue.push_back({.messages = std::move(by_channel[c]), .asked = own.now});
  }

  void begin(int s, size_t channel, Exchange& exchange) {
    exchange.begun = true;
    const double at = std::max(exchange.asked, stage(s).channels[channel].over);
    for (const Message& m : exchange.messages) {
      Link& link = links_[m.send ? std::tuple{s, m.peer, channel} : std::tuple{m.peer, s, channel}];
      const int part = shape_.part_of(s, m.task.chunk);
      const Posted posted{m.task.forward, m.send ? part : part + (m.task.forward ? -1 : 1),
                          m.task.micro, at};
      auto& side = m.send ? link.sends : link.receives;
      exchange.waiting.push_back({m.send ? &link.receives : &link.sends, side.size(), posted});
      side.push_back(posted);
    }
  }

  // Ends the channel's current exchange if both sides of all its messages have been posted.
  bool advance(int s, size_t channel) {
    Channel& own = stage(s).channels[channel];
    if (own.queue.empty()) return false;
    Exchange& exchange = own.queue.front();
    if (!exchange.begun) begin(s, channel, exchange);
    double met = own.over;
    for (const Waiting& w : exchange.waiting) {
      if (w.index >= w.other->size()) return false;
      const Posted& other = (*w.other)[w.index];
      if (other.forward != w.own.forward || other.part != w.own.part || other.micro != w.own.micro)
        throw std::logic_error("pipeline: a message of stage " + std::to_string(s) +
                               " meets another one's receiver");
      met = std::max({met, w.own.at, other.at});
    }
    for (const Message& m : exchange.messages)
      if (!m.send) stage(s).received[words_of(m.task)] = met;
    own.over = met;
    own.queue.pop_front();
    return true;
  }

  bool advance(int s) {
    bool moved = false;
    for (size_t channel = 0; channel < 2; ++channel) moved |= advance(s, channel);
    return advance_tasks(s) || moved;
  }

  // Runs the next task if its input has arrived.
  bool advance_tasks(int s) {
    Stage& own = stage(s);
    if (own.next >= own.tasks.size()) return false;
    const Task& task = own.tasks[own.next];
    if (how_ == Exchanging::synchronous) {
      if (!all_over(own)) return false;
      own.now = std::max(own.now, own.channels[0].over);
    } else if (receives(s, task)) {
      const auto came = own.received.find(words_of(task));
      if (came == own.received.end()) return false;
      own.now = std::max(own.now, came->second);
    }
    execute(s, task);
    ++own.next;
    come_to_round(s);
    return true;
  }

  bool receives(int s, const Task& task) const {
    const int part = shape_.part_of(s, task.chunk);
    return task.forward ? part > 0 : part + 1 < shape_.parts();
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
  Exchanging how_;
  std::vector<Stage> stages_;
  std::map<std::tuple<int, int, size_t>, Link> links_;  // references to its elements stay valid
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const PipelineShape& shape, std::span<const PartTime> parts, Exchanging how) {
  return Simulation(shape, parts, how).run();
}

}  // namespace bv::test
