// Limits of the machine and of the container that the process runs in.
#pragma once
#include <cstddef>
#include <string>

namespace bv {

bool has_avx512();  // F, BW, CD, DQ, VL: x86-64-v4
bool has_bf16();    // AVX512_BF16, which CPUs with AMX have, too
// Cores' worth of time that the process's control groups grant; 0 without a limit.
double cpu_quota();
// The machine's memory, or as much as the process's control groups and `ulimit -v` grant.
size_t memory_in_bytes();
// How much of it no program uses, this one included (caches don't count as use); the largest number
// if the system doesn't say.
size_t free_memory_in_bytes();

// The same for `group` and those above it, in a hierarchy (v2) mounted at `root`; without a limit,
// the largest number and 0.
size_t memory_limit_of_groups(const std::string& root, const std::string& group);
double cpu_quota_of_groups(const std::string& root, const std::string& group);

}  // namespace bv
