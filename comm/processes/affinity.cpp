#include "comm/processes/affinity.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/machine.h"
#include "base/text.h"

namespace bv {
namespace {

// The first CPU that shares a core with this one; `cpu` itself if sysfs has no such list.
int first_sibling(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  int first;
  return file >> first ? first : cpu;
}

std::vector<std::vector<int>> cores_of(const cpu_set_t& cpus) {
  std::map<int, std::vector<int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &cpus)) cores[first_sibling(cpu)].push_back(cpu);
  std::vector<std::vector<int>> list;
  for (auto& [first, members] : cores) list.push_back(std::move(members));
  return list;
}

bool affinity_of(pid_t pid, cpu_set_t* cpus) {
  CPU_ZERO(cpus);
  return sched_getaffinity(pid, sizeof *cpus, cpus) == 0;
}

// Empty if there are more CPUs than a cpu_set_t holds.
std::vector<std::vector<int>> own_cores() {
  cpu_set_t cpus;
  return affinity_of(0, &cpus) ? cores_of(cpus) : std::vector<std::vector<int>>{};
}

// Whether mpirun or srun, say, has pinned this process: its CPUs differ from its parent's.
bool is_already_pinned() {
  cpu_set_t own, parent;
  return affinity_of(0, &own) && affinity_of(getppid(), &parent) && !CPU_EQUAL(&own, &parent);
}

// Limits `cores` to a process's share of the CPU quota, which may be less than the visible CPUs.
int within_quota(int cores, int parts) {
  const double quota = cpu_quota();
  return quota > 0 ? std::clamp(static_cast<int>(quota / parts), 1, cores) : cores;
}

}  // namespace

int requested_threads(bool launched) {
  constexpr int most = 1024;
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (!text || !*text) return 0;
  // In a list, "4,2", the first number counts: the others are for nested parallel regions.
  const auto threads = parse_integer(split(text, ',')[0]);
  if (!threads || *threads < 1 || *threads > most)
    throw UserError("OMP_NUM_THREADS=" + printable(text) +
                    " in the environment should be a number from 1 to " + std::to_string(most) +
                    "; unset it to use all cores");
  return launched || *threads > 1 ? static_cast<int>(*threads) : 0;
}

CoreShare share_of_cores(const std::vector<std::vector<int>>& cores, int part, int parts) {
  CoreShare share;
  const int count = static_cast<int>(cores.size());
  const int begin = static_cast<int>(int64_t{count} * part / parts);
  const int end = std::max(begin + 1, static_cast<int>(int64_t{count} * (part + 1) / parts));
  for (int core = begin; core < std::min(end, count); ++core)
    for (int cpu : cores[core]) CPU_SET(cpu, &share.cpus);
  share.cores = end - begin;
  return share;
}

CoreShare share_of_cores(int part, int parts) {
  const auto cores = own_cores();
  CoreShare share = share_of_cores(cores, part, parts);
  if (cores.empty()) share.cores = std::max(1, usable_cores() / parts);
  share.cores = within_quota(share.cores, parts);
  return share;
}

int usable_cores() {
  const auto cores = own_cores();
  const int count = cores.empty() ? static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))
                                  : static_cast<int>(cores.size());
  return within_quota(std::max(1, count), 1);
}

bool pin_this_process(const CoreShare& share) {
  return CPU_COUNT(&share.cpus) == 0 || sched_setaffinity(0, sizeof share.cpus, &share.cpus) == 0;
}

int pin_to_share(const World& world) {
  // The name shown by top and pgrep.
  prctl(PR_SET_NAME, ("launcher:" + std::to_string(world.rank)).c_str());
  int cores;
  if (is_already_pinned()) {
    cores = within_quota(static_cast<int>(own_cores().size()), world.local_size);
  } else {
    const CoreShare share = share_of_cores(world.local_rank, world.local_size);
    pin_this_process(share);
    cores = share.cores;
  }
  const int requested = requested_threads(world.launched);
  return requested > 0 ? requested : std::max(1, cores);
}

}  // namespace bv
