// The kernels of a run on a GPU or its stand-in.
#pragma once
#include <string>
#include <vector>

#include "engine/setup/device.h"
#include "kernels/table/recording.h"

namespace bv {

// The kernels that --kernels and --conv ask for; plain ones, and those that the device lacks, are
// said in the device's notes. Throws UserError where the two contradict each other, or ask for what
// the device lacks.
KernelSet resolve_kernels(const Options&, DeviceChoice&);

// Which operations kernels made for sm_90 run, of those of a step, without running any:
//   kernels: hopper, linear 46 of 47, attention 24 of 24, convolution 0 of 0; the rest as auto
std::string hopper_line(const std::vector<RecordedOperation>&, const Kernels&);
// The same by shape, a line for each of these operations; with a heading.
std::string hopper_table(const std::vector<RecordedOperation>&, const Kernels&);

}  // namespace bv
