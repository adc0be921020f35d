// What the machine can do at best, measured: the ceilings of a roofline.
#pragma once
#include <functional>
#include <string>

#include "kernels/backend.h"

namespace bv {

struct Ceilings {
  double copy_bytes_per_second;  // read and written ones together
  double product_flops_per_second;
  std::string product;  // what reached that
};

// Of the processor that this process runs on, with all of OpenMP's threads.
Ceilings measure_cpu_ceilings(Backend&);

struct Timing {
  double median;  // seconds of a run
  int runs;
};
// Runs until `seconds` have gone by, and at least five times, after two for warm-up. Caches are as
// the run before has left them.
Timing measure(Backend&, double seconds, const std::function<void()>& run);

}  // namespace bv
