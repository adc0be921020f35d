// The devices that the tests can run on here.
#pragma once
#include <string>

#include "kernels/devices/devices.h"

namespace bv::test {

// Why a device can't be used; empty if it can be used.
inline std::string lack_of(DeviceKind device) {
  if (!is_built(device)) return "not built";
  std::string why;
  return device == DeviceKind::cuda && gpu_count(&why) == 0 ? "no GPU: " + why : "";
}

}  // namespace bv::test
