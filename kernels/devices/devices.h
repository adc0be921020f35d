// The devices of this program: cpu always, simt and cuda if built in.
#pragma once
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace bv {

struct HopperSupport;
enum class DeviceKind : uint8_t { cpu, simt, cuda };

bool is_built(DeviceKind);
// The number of CUDA GPUs visible to this process. If it is 0, *why_none is set to a short reason.
int gpu_count(std::string* why_none);

// Why the device can't run KernelSet::hopper and what to do about it, in a line; empty if it can.
std::string why_no_hopper(DeviceKind, int index);
// The same, from the support that a simt or cuda device reports.
std::string why_no_hopper(DeviceKind, const HopperSupport&);

struct BackendOptions {
  int index;                            // cuda: which GPU
  int threads;                          // cpu
  bool overlap = false;                 // cpu: the communication stream has its own thread
  bool graphs = true;                   // simt and cuda: repeated work is captured in CUDA graphs
  KernelSet kernels = KernelSet::fast;  // simt and cuda
  bool collectives = false;             // simt and cuda: run beside the kernels
};
// Throws std::runtime_error if the device can't be used, std::invalid_argument if not built in.
std::unique_ptr<Backend> make_backend(DeviceKind, const BackendOptions&);

}  // namespace bv
