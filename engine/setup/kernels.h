// The kernels of a run on a GPU or its stand-in.
#pragma once
#include <string>
#include <vector>

#include "engine/setup/device.h"
#include "kernels/table/recording.h"

namespace bv {

// Resolves --kernels and --conv. If the device lacks the kernels that an earlier run asked for, the
// automatic choice replaces them. The device's notes report that, and also plain kernels. Throws
// UserError if the two options contradict each other, or if the user asks for kernels that the
// device lacks.
KernelSet resolve_kernels(const Options&, DeviceChoice&);

// How many of a step's operations the kernels made for sm_90 support, without running any:
//   kernels: hopper, linear 46 of 47, attention 24 of 24, convolution 0 of 0; the rest as auto
std::string hopper_line(const std::vector<RecordedOperation>&, const Kernels&);
// The same by shape: a heading, then a line for each of these operations.
std::string hopper_table(const std::vector<RecordedOperation>&, const Kernels&);

}  // namespace bv
