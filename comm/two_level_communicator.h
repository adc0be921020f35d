// The 2-D all-reduce: a reduce-scatter among the L ranks of a node, an all-reduce of each rank's
// 1/L between the N nodes, by all L ranks at once, and an all-gather inside (comm/README.md
// compares it). It adds in another order than a flat all-reduce; all ranks end with the same bits.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace bv {

// whole: all ranks, for all other collectives. local: the ranks of this node; null: there is one.
// across: those with the same place on each node.
std::unique_ptr<Communicator> make_two_level_communicator(std::unique_ptr<Communicator> whole,
                                                          std::unique_ptr<Communicator> local,
                                                          std::unique_ptr<Communicator> across);

}  // namespace bv
