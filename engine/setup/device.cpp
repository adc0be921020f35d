#include "engine/setup/device.h"

#include <algorithm>

#include "base/error.h"

namespace bv {
namespace {

void require_built(DeviceKind kind) {
  if (is_built(kind)) return;
  throw UserError(kind == DeviceKind::simt
                      ? "--device simt: this program was built without it (SIMT=0); run make"
                      : "--device cuda: this program was built without CUDA; make reports "
                        "what it found");
}

}  // namespace

DeviceChoice choose_device(const MachineOptions& o, const World& world) {
  if (o.device == DeviceKind::cpu) return {DeviceKind::cpu};
  if (o.device == DeviceKind::simt) {
    require_built(DeviceKind::simt);
    return {DeviceKind::simt, 0, o.oversubscribe};
  }
  if (o.device == DeviceKind::cuda) require_built(DeviceKind::cuda);
  std::string why;
  const int gpus = gpu_count(&why), processes = world.local_size;
  if (gpus >= processes)
    return {DeviceKind::cuda, world.device < 0 ? world.local_rank : world.device};
  // Another launcher may show each process only its own GPU.
  if (gpus == 1 && !world.launched) return {DeviceKind::cuda};
  if (gpus > 0 && o.oversubscribe) return {DeviceKind::cuda, world.local_rank % gpus, true};
  const std::string lack = gpus == 0
                               ? "no GPU (" + why + ")"
                               : std::to_string(gpus) + (gpus == 1 ? " GPU for " : " GPUs for ") +
                                     std::to_string(processes) + " processes";
  if (o.device == DeviceKind::cuda)
    throw UserError("--device cuda: " + lack +
                    (gpus == 0 ? "; leave it out, or give --device cpu"
                               : "; -n " + std::to_string(gpus) +
                                     " would fit, --oversubscribe lets processes share"));
  DeviceChoice cpu{DeviceKind::cpu};
  if (is_built(DeviceKind::cuda)) cpu.notes.push_back(lack + ": this run is on the cpu");
  return cpu;
}

DType resolve_precision(Options& o, const Backend& backend, DeviceKind device) {
  const bool bf16 = backend.supports(DType::bf16);
  const DType best = !backend.supports(DType::fp16) || device == DeviceKind::simt ? DType::fp32
                     : bf16                                                       ? DType::bf16
                                                                                  : DType::fp16;
  if (o.precision && !backend.supports(*o.precision) && o.is_explicit("precision"))
    throw UserError(
        "--precision " + word_of(o.precision) + ": the " + word_of(device) + " device " +
        (device != DeviceKind::cpu ? "supports fp16 and fp32; bf16 needs compute capability 8.0"
         : bf16                    ? "computes in fp32 and bf16 (--precision bf16)"
                                   : "computes in fp32 (--precision fp32); bf16 needs a CPU "
                                     "with AVX512_BF16"));
  if (!o.precision || !backend.supports(*o.precision)) o.precision = best;
  return *o.precision;
}

int default_processes(std::optional<DeviceKind> device) {
  return device.value_or(DeviceKind::cuda) == DeviceKind::cuda ? std::max(1, gpu_count(nullptr))
                                                               : 1;
}

}  // namespace bv
