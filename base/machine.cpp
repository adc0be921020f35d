#include "base/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace bv {
namespace {

constexpr const char* cgroup_root = "/sys/fs/cgroup";

// The process's control group in the unified hierarchy, from the line "0::/path"; "/" without one.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return "/";
}

// Calls read(stream) for the file `name` of the group and of each of its ancestors.
template <class Read>
void for_groups(const std::string& root, std::string group, const char* name, Read read) {
  while (true) {
    if (std::ifstream file(root + "/" + group + "/" + name); file) read(file);
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

size_t memory_limit_of_groups(const std::string& root, const std::string& group) {
  size_t limit = std::numeric_limits<size_t>::max();
  for_groups(root, group, "memory.max", [&](std::ifstream& file) {
    if (size_t bytes; file >> bytes) limit = std::min(limit, bytes);  // "max" is not a number
  });
  return limit;
}

double cpu_quota_of_groups(const std::string& root, const std::string& group) {
  double quota = 0;
  for_groups(root, group, "cpu.max", [&](std::ifstream& file) {
    double time, period;
    if (!(file >> time >> period) || period <= 0) return;
    quota = quota > 0 ? std::min(quota, time / period) : time / period;
  });
  return quota;
}

bool has_avx512() { return __builtin_cpu_supports("x86-64-v4"); }
bool has_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

double cpu_quota() { return cpu_quota_of_groups(cgroup_root, own_group()); }

size_t memory_in_bytes() {
  const size_t physical = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
  rlimit address_space{};
  getrlimit(RLIMIT_AS, &address_space);  // RLIM_INFINITY is the largest number
  return std::min(
      {physical, memory_limit_of_groups(cgroup_root, own_group()), size_t(address_space.rlim_cur)});
}

size_t free_memory_in_bytes() {
  std::ifstream file("/proc/meminfo");
  size_t kib;
  for (std::string word; file >> word;)
    if (word == "MemAvailable:" && file >> kib) return std::min(kib * 1024, memory_in_bytes());
  return std::numeric_limits<size_t>::max();
}

}  // namespace bv
