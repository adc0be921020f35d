// The communicator of a run with a single rank.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace bv {

// Works on host memory.
std::unique_ptr<Communicator> make_single_communicator();

}  // namespace bv
