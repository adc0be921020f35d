#include "kernels/simt/device/break.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

// Neither inlined nor optimised away, so that a breakpoint on it works.
extern "C" [[gnu::noinline]] void simt_break() { asm volatile(""); }

namespace simt {
namespace {

struct Place {
  std::string kernel;
  uint3 block, thread;
};

std::optional<Place> wanted() {
  const char* set = std::getenv("SIMT_BREAK");
  if (!set) return {};
  // Names of kernels contain commas, too: the numbers are parsed from the end.
  Place place{.kernel = set};
  unsigned* const numbers[] = {&place.thread.z, &place.thread.y, &place.thread.x,
                               &place.block.z,  &place.block.y,  &place.block.x};
  for (unsigned* number : numbers) {
    const size_t comma = place.kernel.rfind(',');
    char end = 0;
    if (comma == std::string::npos ||
        std::sscanf(place.kernel.c_str() + comma, ",%u%c", number, &end) != 1)
      throw std::runtime_error("SIMT_BREAK=" + std::string(set) +
                               ": should be KERNEL,bx,by,bz,tx,ty,tz");
    place.kernel.resize(comma);
  }
  return place;
}

}  // namespace

bool breaks_in(const Launch& launch) {
  const auto place = wanted();
  return place && launch.name.find(place->kernel) != std::string::npos;
}

unsigned thread_to_break_in(const Launch& launch, uint3 block) {
  const auto place = wanted();
  if (!place || launch.name.find(place->kernel) == std::string::npos) return ~0u;
  const auto [b, t] = std::pair(place->block, place->thread);
  if (b.x != block.x || b.y != block.y || b.z != block.z) return ~0u;
  const dim3 shape = launch.block;
  if (t.x >= shape.x || t.y >= shape.y || t.z >= shape.z) return ~0u;
  return t.x + shape.x * (t.y + shape.y * t.z);
}

}  // namespace simt
