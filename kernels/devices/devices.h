// The devices of this program: cpu always, simt and cuda if built in.
#pragma once
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace bv {

struct HopperSupport;
enum class DeviceKind : uint8_t { cpu, simt, cuda };

bool is_built(DeviceKind);
// The CUDA GPUs that this process sees. If there are none, *why_none says why in a few words.
int gpu_count(std::string* why_none);

// Why the device can't have KernelSet::hopper, and what to do, in a line; empty: it can.
std::string why_no_hopper(DeviceKind, int index);
// The same in words, of a device that is not the cpu.
std::string why_no_hopper(DeviceKind, const HopperSupport&);

struct BackendOptions {
  int index;                            // cuda: which GPU
  int threads;                          // cpu
  bool overlap = false;                 // cpu: the communication stream has a thread of its own
  bool graphs = true;                   // simt and cuda: repeated work is captured in CUDA graphs
  KernelSet kernels = KernelSet::fast;  // simt and cuda
};
// Throws std::runtime_error if the device can't be used, std::invalid_argument if not built in.
std::unique_ptr<Backend> make_backend(DeviceKind, const BackendOptions&);

}  // namespace bv
