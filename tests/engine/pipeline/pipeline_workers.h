// Processes of pipelined_training_test.cpp. They return 0 if all is well.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Stages train to the bits of one process that has the whole model.
int stages_train_as_the_whole(Communicator&, Backend&, DeviceKind);
// In whatever order the device runs what it may choose among.
int no_order_changes_a_bit(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
