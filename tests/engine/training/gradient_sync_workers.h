// Worker processes of gradient_sync_test.cpp and ordered_sum_test.cpp. They return 0 if all checks
// pass.
#pragma once
#include "kernels/devices/devices.h"

namespace bv::test {

// Trains on one to four channels in 20 orders of the streams; all must give equal bits.
int channels_change_no_bit(Communicator&, Backend&, DeviceKind);

// OrderedSum in each dtype has the bits of SumParts and sends as many bytes as it documents.
int ordered_sum_has_one_order(Communicator&, Backend&, DeviceKind);

}  // namespace bv::test
