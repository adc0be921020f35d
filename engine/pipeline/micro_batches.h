// How the images of a batch are divided among micro-batches.
#pragma once
namespace bv {

struct Micro {
  int images;  // of a replica's share of a batch
  int stages = 1, chunks = 1;
  bool mixing = false;      // images are mixed in pairs
  bool batch_norm = false;  // takes its statistics from a micro-batch
};

// --micro-batches where it isn't given: 4 for each stage if the images can be divided so, else the
// next smaller number that they can be divided by, else the next larger one. If there is none,
// check_micro_batches refuses the result.
int default_micro_batches(const Micro&);

// Throws UserError that names the numbers next to it that would do.
void check_micro_batches(int count, const Micro&);

}  // namespace bv
