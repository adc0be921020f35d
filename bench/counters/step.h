// The kernels of a model's training step, run on the stand-in and counted.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "kernels/arguments.h"
#include "simt/counters/counters.h"

namespace bv::counting {

struct Step {
  std::string model, precision;
  int image_size, batch;
  int multiprocessors;  // of the device: grids of many kernels follow it
};

struct OperationCounts {
  std::string name, shape;
  int count;                                      // how often a step runs it
  Cost cost;                                      // of one run
  std::map<std::string, simt::Counters> kernels;  // of one run

  simt::Counters all() const;
};

struct StepCounts {
  std::vector<OperationCounts> operations;

  std::map<std::string, simt::Counters> kernels() const;  // of the whole step
  double moved() const;                                   // bytes
  double needed() const;
  double flops() const;
  uint64_t launches() const;
};

// Only operations with the word in their name, or in a kernel's, whatever its case.
StepCounts count_step(const Step&, const std::string& word = "");
// Counts launches without running the kernels: for batches of any size.
StepCounts count_launches(const Step&);

}  // namespace bv::counting
