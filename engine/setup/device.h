// The device of a run, and the precision it computes in.
#pragma once
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "engine/options/options.h"
#include "kernels/devices/devices.h"

namespace bv {

struct DeviceChoice {  // the device that a process uses
  DeviceKind kind;
  int index = 0;                        // which GPU
  bool shared = false;                  // by several processes
  std::vector<std::string> notes = {};  // lines for the user
};
// Resolves --device. Throws UserError if the machine doesn't have that device.
DeviceChoice choose_device(const MachineOptions&, const World&);

// Resolves --precision. A recipe's precision that the device lacks falls back to the device's
// default; the recipe check reports it. Throws UserError if the user asked for one that it lacks.
DType resolve_precision(Options&, const Backend&, DeviceKind);

// The default of -n: one process per GPU, else 1.
int default_processes(std::optional<DeviceKind>);

}  // namespace bv
