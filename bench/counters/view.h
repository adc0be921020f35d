// One kernel's counts by line (simt/counters/lines.h), for make view.
#pragma once
#include <span>
#include <string>

#include "bench/counters/step.h"

namespace bv::counting {

// Runs an operation of the first of these steps that launches the kernel, named without its
// arguments or by a part of that name, and prints what simt/counters/lines_json.h describes, with
// {"kernel": its plain name, "case": "OPERATION SHAPE"}. The case is the one whose text has the
// words, by default the one that runs most often in the step. Throws UserError: no kernel of that
// name, or several; no such case.
void view_kernel(std::span<const Step>, const std::string& name, const std::string& words);

}  // namespace bv::counting
