// Runs work on each image of a data set in several threads.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace bv {

// Calls work(i) once for every i below `count`, distributed over `threads` threads, and
// progress(number done) about once per `often` on the calling thread. An exception from either is
// rethrown after the threads have stopped.
void in_threads(int64_t count, int threads, const std::function<void(int64_t i)>& work,
                std::chrono::milliseconds often, const std::function<void(int64_t done)>& progress);

}  // namespace bv
