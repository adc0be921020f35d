// What the machine, and the container around the process, allow.
#pragma once
#include <cstddef>
#include <string>

namespace bv {

// Cores' worth of time that the process's control groups grant; 0: no limit.
double cpu_quota();
// The machine's memory, or what the process's control groups grant of it.
size_t memory_in_bytes();

// The same for the control group `group` and those above it, in a hierarchy (v2) mounted at `root`;
// the largest number, and 0, where there is no limit.
size_t memory_limit_of_groups(const std::string& root, const std::string& group);
double cpu_quota_of_groups(const std::string& root, const std::string& group);

}  // namespace bv
