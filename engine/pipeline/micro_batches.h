// How the images of a batch are divided among micro-batches.
#pragma once
#include <string>

namespace bv {

struct Micro {
  int images;  // a replica's share of a batch
  int stages = 1, chunks = 1;
  bool mixing = false;      // images are mixed in pairs
  bool batch_norm = false;  // computes statistics over a micro-batch
};

// Why `count` micro-batches are impossible ("doesn't divide the local batch of 6"); empty if they
// are possible.
std::string unfit(int count, const Micro&);
inline bool divides(int count, const Micro& micro) { return unfit(count, micro).empty(); }
// The smallest possible number of micro-batches from `count` up; 0: none.
int next_micro_batches(int count, const Micro&);

// The default of --micro-batches: 4 per stage of a pipeline, else 1; if the images can't be divided
// so, the next smaller possible number, else the next larger one. If there is none,
// check_micro_batches refuses the result.
int default_micro_batches(const Micro&);

// Throws UserError that names the nearest possible numbers.
void check_micro_batches(int count, const Micro&);

}  // namespace bv
