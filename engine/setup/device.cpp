#include "engine/setup/device.h"

#include <algorithm>

#include "base/error.h"

namespace bv {
namespace {

DType dtype_of(const std::string& precision) {
  return precision == "fp16" ? DType::fp16 : precision == "bf16" ? DType::bf16 : DType::fp32;
}

void require_built(DeviceKind kind) {
  if (is_built(kind)) return;
  throw UserError(kind == DeviceKind::simt
                      ? "--device simt: this program was built without it (SIMT=0); run make"
                      : "--device cuda: this program was built without CUDA; make reports "
                        "what it found");
}

}  // namespace

DeviceChoice choose_device(const Options& o, const World& world) {
  if (o.device == "cpu") return {DeviceKind::cpu};
  if (o.device == "simt") {
    require_built(DeviceKind::simt);
    return {DeviceKind::simt, 0, o.oversubscribe};
  }
  if (o.device == "cuda") require_built(DeviceKind::cuda);
  std::string why;
  const int gpus = gpu_count(&why), processes = world.local_size;
  if (gpus >= processes) return {DeviceKind::cuda, world.local_rank};
  // Another launcher may show each process its own GPU alone.
  if (gpus == 1 && !world.launched) return {DeviceKind::cuda};
  if (gpus > 0 && o.oversubscribe) return {DeviceKind::cuda, world.local_rank % gpus, true};
  const std::string lack = gpus == 0
                               ? "no GPU (" + why + ")"
                               : std::to_string(gpus) + (gpus == 1 ? " GPU for " : " GPUs for ") +
                                     std::to_string(processes) + " processes";
  if (o.device == "cuda")
    throw UserError("--device cuda: " + lack +
                    (gpus == 0 ? ""
                               : "; -n " + std::to_string(gpus) +
                                     " would fit, --oversubscribe lets processes share"));
  DeviceChoice cpu{DeviceKind::cpu};
  if (is_built(DeviceKind::cuda)) cpu.notes.push_back(lack + ": this run is on the cpu");
  return cpu;
}

const char* name_of(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : kind == DeviceKind::simt ? "simt" : "cuda";
}

DType resolve_precision(Options& o, const Backend& backend, DeviceKind device) {
  const auto supports = [&](const std::string& name) { return backend.supports(dtype_of(name)); };
  const std::string best = !supports("fp16") || device == DeviceKind::simt ? "fp32"
                           : supports("bf16")                              ? "bf16"
                                                                           : "fp16";
  if (o.precision == "auto") {
    o.precision = best;
  } else if (!supports(o.precision)) {
    if (o.is_explicit("precision"))
      throw UserError("--precision " + o.precision + ": the " + name_of(device) + " device " +
                      (device != DeviceKind::cpu
                           ? "has fp16 and fp32, but bf16 needs compute capability 8.0"
                       : supports("bf16") ? "computes in fp32 and bf16 (--precision bf16)"
                                          : "computes in fp32 (--precision fp32); bf16 takes a CPU "
                                            "with AVX512_BF16"));
    o.precision = best;
  }
  return dtype_of(o.precision);
}

int default_processes(const std::string& device) {
  if (device != "auto" && device != "cuda") return 1;
  return std::max(1, gpu_count(nullptr));
}

}  // namespace bv
