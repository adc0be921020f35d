// What the processes of gradient_sync_test.cpp do. 0: as it should be.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Trains on one to four channels over 20 orders of the streams, with equal bits.
int channels_change_no_bit(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
