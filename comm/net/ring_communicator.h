// Collectives on host memory over a Mesh, for the cpu device on several machines. An all-reduce
// goes around a ring twice, as comm/README.md shows step by step.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/net/mesh.h"

namespace bv {

// A communicator of all ranks of the mesh. Its collectives, including those of its groups, run one
// at a time in call order on any streams. hosts: for barriers and scalars. Made and destroyed by
// the main thread; destroyed before the backend whose streams it runs on.
std::unique_ptr<Communicator> make_ring_communicator(std::shared_ptr<Mesh>,
                                                     std::unique_ptr<Communicator> hosts);

}  // namespace bv
