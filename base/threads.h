// Work on each image of a data set, by several threads.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace bv {

// Calls work(i) for every i below `count`, each from one of the threads, and `progress` with how
// many are done, from the calling one, about so often. What either throws is thrown, once the
// threads have stopped.
void in_threads(int64_t count, int threads, const std::function<void(int64_t i)>& work,
                std::chrono::milliseconds often, const std::function<void(int64_t done)>& progress);

}  // namespace bv
