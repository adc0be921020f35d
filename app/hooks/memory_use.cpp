#include "app/hooks/memory_use.h"

#include <fstream>
#include <optional>
#include <string>

namespace bv {

void MemoryUse::after_train_epoch(Run& run, EpochRecord& record) {
  record.peak_memory_bytes = static_cast<int64_t>(run.trainer.plan().peak());
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(256, '\n')) {
    int64_t* const bytes = name == "VmRSS:"   ? &record.host_memory_bytes
                           : name == "VmHWM:" ? &record.host_peak_memory_bytes
                                              : nullptr;
    if (bytes && status >> *bytes) *bytes *= 1024;
  }
  if (const std::optional<DeviceMemoryUse> device = run.backend.memory_use()) {
    record.device_memory_bytes = static_cast<int64_t>(device->used);
    record.device_peak_memory_bytes = static_cast<int64_t>(device->peak);
  }
}

}  // namespace bv
