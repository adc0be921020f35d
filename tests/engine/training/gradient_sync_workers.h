// Processes of gradient_sync_test.cpp. They return 0 if all is well.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Trains on one to four channels over 20 orders of the streams, with equal bits.
int channels_change_no_bit(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
