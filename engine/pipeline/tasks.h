// The tasks of a stage in a step, in order. P stages with V chunks each make P * V parts of the
// model: part i is chunk i / P of stage i % P. A batch passes through in M micro-batches.
//   V = 1: 1F1B (Narayanan et al. 2019): P - 1 - stage micro-batches forward, then one forward and
//     one backward alternately, then the remaining ones backward;
//   V > 1: interleaved (Narayanan et al. 2021): P micro-batches pass through a chunk before the
//     next chunk's turn, so M is a multiple of P; warm-up: 2 (P - 1 - stage) + (V - 1) P tasks.
// Without a pipeline (P = V = 1) each micro-batch runs forward, then backward.
#pragma once
#include <vector>

namespace bv {

struct PipelineShape {
  int stages = 1, chunks = 1, micro_batches = 1;

  int parts() const { return stages * chunks; }
  int part_of(int stage, int chunk) const { return chunk * stages + stage; }
};

// One chunk's pass for one micro-batch.
struct Task {
  bool forward;
  int chunk, micro;
  bool operator==(const Task&) const = default;
};

std::vector<Task> schedule(const PipelineShape&, int stage);

// Number of forward tasks with which the schedule begins.
int warm_up(const PipelineShape&, int stage);

// One message of an exchange. If sent, it contains the result of this stage's `task`: a forward's
// outputs, or the gradients of a backward's inputs. If received, it contains the input of `task`.
// Its memory is the chunk's slot for task.micro (`slot_of`).
struct Message {
  bool send;
  Task task;
  int peer;  // the other stage
  bool operator==(const Message&) const = default;
};

// rounds[i] is exchanged before tasks[i], its messages in this order on both sides; the last round,
// rounds[tasks.size()], after all tasks. An empty round exchanges nothing.
// V = 1: rounds around each task. V > 1, as in Megatron-LM: after each forward of the warm-up,
// after each pair of a forward and a backward, after each backward at the end. Rounds around each
// task would deadlock there: a stage would wait for an input that its sender sends only after a
// pair.
using Round = std::vector<Message>;
std::vector<Round> rounds(const PipelineShape&, int stage);

// The largest number of micro-batches in flight, by chunk. A micro-batch is in flight from the
// exchange that receives its forward's input until its backward ends.
std::vector<int> slots(const PipelineShape&, int stage);

// No two micro-batches in flight share a slot: forward and backward have the same order in a chunk.
inline int slot_of(int micro, int slots) { return micro % slots; }

}  // namespace bv
