#include "app/hooks/memory_use.h"

#include <fstream>
#include <string>

namespace bv {

void MemoryUse::after_train_epoch(Run& run, EpochRecord& record) {
  record.peak_memory_bytes = static_cast<int64_t>(run.trainer.plan().peak());
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(256, '\n')) {
    int64_t* const bytes = name == "VmRSS:"   ? &record.host_bytes
                           : name == "VmHWM:" ? &record.host_peak_bytes
                                              : nullptr;
    if (bytes && status >> *bytes) *bytes *= 1024;
  }
}

}  // namespace bv
