// Which device a run takes, and what it computes in there.
#pragma once
#include <string>
#include <vector>

#include "engine/options/options.h"
#include "engine/processes/world.h"
#include "kernels/devices/devices.h"

namespace bv {

// A device for one of the processes on this machine.
struct DeviceChoice {
  DeviceKind kind;
  int index = 0;        // which GPU
  bool shared = false;  // by several processes
};
// What --device comes to. Throws UserError where what was asked for isn't there; adds a line for the
// user to `notes` where auto had to give way.
DeviceChoice choose_device(const Options&, const World&, std::vector<std::string>& notes);
const char* name_of(DeviceKind);

// Settles --precision for the device. Throws UserError where it lacks what the user stated.
DType settle_precision(Options&, const Backend&, DeviceKind, std::vector<std::string>& notes);

// Processes that -n starts where it isn't given: one for each GPU, else 1.
int default_processes(const std::string& device);

}  // namespace bv
