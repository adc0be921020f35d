// Worker processes of pipelined_training_test.cpp. They return 0 if all checks pass.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Stages train to the same bits as one process with the whole model.
int stages_train_as_the_whole(Communicator&, Backend&, DeviceKind);
// The same for different orders in which the device may run queued work.
int no_order_changes_a_bit(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
