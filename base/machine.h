// Limits of the machine and of the container that the process runs in.
#pragma once
#include <cstddef>
#include <string>

namespace bv {

bool has_avx512();  // F, BW, CD, DQ, VL: x86-64-v4
bool has_bf16();    // AVX512_BF16, which CPUs with AMX have, too
// Number of cores whose time the process's control groups grant; 0 without a limit.
double cpu_quota();
// The machine's memory, or less if the process's control groups or `ulimit -v` grant less.
size_t memory_in_bytes();
// The part of it that no program uses, including this one (caches don't count as used); the largest
// number if unknown.
size_t free_memory_in_bytes();

// The limit of `group` and the groups above it, in a hierarchy (v2) mounted at `root`; the largest
// number and 0 without a limit.
size_t memory_limit_of_groups(const std::string& root, const std::string& group);
double cpu_quota_of_groups(const std::string& root, const std::string& group);

}  // namespace bv
