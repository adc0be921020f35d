// Gathers one byte buffer per rank on rank 0.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

// Collective. On rank 0, returns every rank's bytes by rank; on other ranks, an empty vector. The
// bytes are sent from device memory. communicator: null if there is one process.
std::vector<std::vector<std::byte>> collect(std::span<const std::byte> own, Backend&,
                                            Communicator*);

}  // namespace bv
