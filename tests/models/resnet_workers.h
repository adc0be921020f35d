// Worker processes of resnet_test.cpp. They return 0 if all checks pass.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Batch norm over all processes must give the weights and statistics of one process with all
// images.
int synced_batchnorm(Communicator&, Backend&, DeviceKind);
// Without batch norm over all processes, running statistics are the mean over the processes.
int mean_statistics(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
