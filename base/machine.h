// Limits of the machine and of the container that the process runs in.
#pragma once
#include <cstddef>
#include <string>

namespace bv {

bool has_avx512();  // F, BW, CD, DQ, VL: x86-64-v4
bool has_bf16();    // AVX512_BF16, which CPUs with AMX have, too
// CPU time that the process's control groups (cgroups) allow, in cores; 0 without a limit.
double cpu_quota();
// The machine's memory, or less if the process's control groups or `ulimit -v` allow less.
size_t memory_in_bytes();
// The machine's available memory (MemAvailable: caches count as free), at most memory_in_bytes();
// the largest size_t if unknown.
size_t free_memory_in_bytes();

// The lowest limit of `group` and its ancestors in a cgroup v2 hierarchy mounted at `root`. Without
// a limit: the largest size_t, and 0.
size_t memory_limit_of_groups(const std::string& root, const std::string& group);
double cpu_quota_of_groups(const std::string& root, const std::string& group);

}  // namespace bv
