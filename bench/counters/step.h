// Runs the kernels of a model's training step on the stand-in and counts what they do.
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
  int multiprocessors;  // of the device; sets the grid size of many kernels
  KernelSet set = KernelSet::fast;
};

struct OperationCounts {
  std::string name, shape;
  int count;                                      // runs per step
  Cost cost;                                      // per run
  std::map<std::string, simt::Counters> kernels;  // per run

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

// Counts only operations with the word (ignoring case) in their name or in a kernel's.
StepCounts count_step(const Step&, const std::string& word = "");
// Counts one run of the step's operation with this number.
OperationCounts count_operation(const Step&, size_t number);
// Counts launches without running the kernels, so batches can be of any size.
StepCounts count_launches(const Step&);

}  // namespace bv::counting
