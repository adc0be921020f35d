// The 2-D all-reduce: a reduce-scatter among the L ranks of a node, L concurrent all-reduces of 1/L
// of the data each between the N nodes, and an all-gather inside the node (see comm/README.md).
// It adds in a different order from a flat all-reduce; all ranks end with the same bits.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace bv {

// whole: all ranks; runs all other collectives. local: the ranks of this node; null if it has only
// one. across: the ranks that have this rank's place on their nodes.
std::unique_ptr<Communicator> make_two_level_communicator(std::unique_ptr<Communicator> whole,
                                                          std::unique_ptr<Communicator> local,
                                                          std::unique_ptr<Communicator> across);

}  // namespace bv
