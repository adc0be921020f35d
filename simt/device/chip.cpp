#include "simt/device/chip.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace simt {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr Chip chips[] = {{"sm_75", 75, 64 * 1024},
                          {"sm_80", 80, 163 * 1024},
                          {"sm_86", 86, 99 * 1024},
                          {"sm_89", 89, 99 * 1024},
                          {"sm_90", 90, 227 * 1024}};

}  // namespace

const Chip& chip() {
  const char* set = std::getenv("SIMT_ARCH");
  const std::string name = set ? set : "sm_80";
  std::string known;
  for (const Chip& c : chips) {
    if (c.name == name) return c;
    known += std::string(known.empty() ? "" : ", ") + c.name;
  }
  throw std::runtime_error("SIMT_ARCH=" + name + ": unknown chip; known are " + known);
}

}  // namespace simt
