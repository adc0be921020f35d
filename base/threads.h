// Work on each image of a data set, by several threads.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace bv {

// Calls work(i) for every i below `count`, each on one of the threads, and about every `often`
// progress(how many are done) on the calling thread. Rethrows what either throws, once the threads
// have stopped.
void in_threads(int64_t count, int threads, const std::function<void(int64_t i)>& work,
                std::chrono::milliseconds often, const std::function<void(int64_t done)>& progress);

}  // namespace bv
