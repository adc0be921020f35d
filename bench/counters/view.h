// One kernel's counts by line (simt/counters/lines.h), for make view.
#pragma once
#include <span>
#include <string>

#include "bench/counters/step.h"

namespace bv::counting {

// Takes the first of these steps that launches the kernel `name`: its name without template
// arguments, or a part of it. Runs one of the step's operations that launch the kernel and prints
// what simt/counters/lines_json.h describes, with {"kernel": its plain name, "case": "OPERATION
// SHAPE"}. `words`: a part of the case's text; empty: the case that runs most often in the step.
// Throws UserError if no kernel or several have that name, or if no case has the words.
void view_kernel(std::span<const Step>, const std::string& name, const std::string& words);

}  // namespace bv::counting
