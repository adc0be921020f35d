// A rank that is alone.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace bv {

// On host memory.
std::unique_ptr<Communicator> make_single_communicator();

}  // namespace bv
