// The check of an exchange's transfers, for all communicators.
#pragma once
#include <span>
#include <stdexcept>
#include <string>

#include "comm/communicator.h"

namespace bv {

// Throws std::invalid_argument if a peer isn't one of `ranks`.
inline void require_peers(std::span<const Transfer> transfers, int ranks) {
  for (const Transfer& t : transfers)
    if (t.peer < 0 || t.peer >= ranks)
      throw std::invalid_argument("exchange: there is no rank " + std::to_string(t.peer));
}

}  // namespace bv
