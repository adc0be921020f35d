// Every communicator, with its groups and channels, between real processes.
#include <gtest/gtest.h>

#include <string>

#include "kernels/devices/devices.h"
#include "tests/comm/processes.h"

namespace bv::test {
namespace {

void expect_right(int ranks, const std::string& device, const std::string& how, unsigned seed) {
  const std::string words = "communicator " + device + " " + how + " " + std::to_string(seed);
  Child launcher([&] { return launch_workers(ranks, words); });
  const Ending ending = launcher.wait();
  EXPECT_EQ(ending.code, 0) << ranks << " ranks, " << words << ": " << ending.errors;
}

TEST(Communicator, ThroughSharedMemory) {
  for (int ranks = 1; ranks <= 4; ++ranks) expect_right(ranks, "cpu", "direct", 0);
}

TEST(Communicator, OfNcclInThreeOrdersOfStreams) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  expect_right(1, "simt", "direct", 0);
  for (const unsigned seed : {0, 1, 8}) expect_right(2, "simt", "direct", seed);
  expect_right(3, "simt", "direct", 9);
  expect_right(4, "simt", "direct", 10);
}

TEST(Communicator, ThroughTheHosts) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  for (const unsigned seed : {0, 1}) expect_right(2, "simt", "staged", seed);
  expect_right(3, "simt", "staged", 9);
}

}  // namespace
}  // namespace bv::test
