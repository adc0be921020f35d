// Collectives on host memory over a Mesh, for the cpu device on several machines. An all-reduce
// goes around a ring twice: in N - 1 steps each rank adds its part to a chunk and passes it on,
// until each rank has one chunk's whole sum (reduce-scatter); in N - 1 more the sums go around
// (all-gather). Each rank sends 2 S (N - 1) / N bytes to its right neighbour alone, of S bytes of
// data.
#pragma once
#include <memory>

#include "kernels/backend.h"
#include "kernels/comm/net/mesh.h"

namespace bv {

// Of all ranks of the mesh, or of a group of them. Collectives run one after another in the order
// of the calls, whatever their streams, those of groups included. hosts: for barriers and scalars.
// Made and destroyed by the main thread, before the backend whose streams it runs on.
std::unique_ptr<Communicator> make_ring_communicator(std::shared_ptr<Mesh>,
                                                     std::unique_ptr<Communicator> hosts);

}  // namespace bv
