// Gathers one byte buffer per rank on rank 0.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

// Collective. In rank 0's process the bytes of each rank, by rank; elsewhere nothing. They travel
// through device memory. No communicator: one process.
std::vector<std::vector<std::byte>> collect(std::span<const std::byte> own, Backend&,
                                            Communicator*);

}  // namespace bv
