#include "engine/pipeline/grid.h"

#include <string>

#include "base/error.h"

namespace bv {

std::vector<int> Grid::pipeline_group() const {
  std::vector<int> ranks;
  for (int s = 0; s < stages; ++s) ranks.push_back(rank_of(s, replica));
  return ranks;
}

std::vector<int> Grid::data_group() const {
  std::vector<int> ranks;
  for (int r = 0; r < replicas; ++r) ranks.push_back(rank_of(stage, r));
  return ranks;
}

Grid grid_of(int rank, int world, int stages) {
  if (world % stages) {
    const int fewer = world / stages * stages, more = fewer + stages;
    throw UserError("-n " + std::to_string(world) + " is not a multiple of --pipeline " +
                    std::to_string(stages) + "; try -n " +
                    (fewer ? std::to_string(fewer) + " or " : "") + std::to_string(more));
  }
  const int replicas = world / stages;
  return {
      .stages = stages, .replicas = replicas, .stage = rank / replicas, .replica = rank % replicas};
}

}  // namespace bv
