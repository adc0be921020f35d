// Processes of resnet_test.cpp, each with its peers. They return 0 if all is well.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Batch norm over all processes gives the weights and statistics of one process with all images.
int synced_batchnorm(Communicator&, Backend&, DeviceKind);
// Without it, running statistics are the mean over the processes.
int mean_statistics(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
