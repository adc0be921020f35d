// Counted steps as text, to read and to compare line by line.
#pragma once
#include <string>

#include "bench/counters/step.h"

namespace bv::counting {

std::string title(const Step&);  // "vit_tiny, bf16, 224 pixels, batch 4, 1 multiprocessor"
std::string kernel_table(const std::map<std::string, simt::Counters>&);
// A line per kernel, then per operation, then for the step.
std::string table(const Step&, const StepCounts&);

}  // namespace bv::counting
