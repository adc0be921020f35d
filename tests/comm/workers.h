// Worker processes of tests that call launch_workers(): the test program starts itself again with
// the worker's words, and its main() (tests/comm/main.cpp) runs the worker in place of the tests.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/processes/world.h"
#include "kernels/devices/devices.h"

namespace bv::test {

using Words = std::vector<std::string>;
using Worker = int (*)(const Words&);                               // returns the exit code
using DeviceWorker = int (*)(Communicator&, Backend&, DeviceKind);  // 0 if all checks pass

// The workers of this program, by their first word. Beside the test that launches it:
//   [[maybe_unused]] const bool added = add_worker("sum", sum);
std::map<std::string, Worker>& workers();
inline bool add_worker(const std::string& name, Worker worker) {
  return workers().emplace(name, worker).second;
}

// This process's place; ends it if there is none.
World own_world();
// The i-th word as a number; 0 if there is none.
int number(const Words&, size_t i);
// Runs `work` on all ranks, on the device that the second word names, with their communicator:
// `staged`, through host memory.
int on_device(const Words&, DeviceWorker work, bool staged = false);
// The same as a Worker.
template <DeviceWorker work>
int on_device(const Words& words) {
  return on_device(words, work);
}

}  // namespace bv::test
