// The precision that was asked for, and the one that the run has.
#include "engine/base/text.h"
#include "engine/lint/checks.h"
#include "engine/options/option_table.h"

namespace bv {

void check_precision(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (s.asked.precision != "auto" && s.asked.precision != o.precision)
    findings.push_back({.what = "computes in " + o.precision + ", not in " + s.asked.precision,
                        .why = "which the " + o.device + " device lacks",
                        .change = "--precision, --device"});
  for (const char* option : {"loss_scale", "loss_scale_init", "loss_scale_growth_interval"})
    if (o.is_explicit(option) && o.precision != "fp16")
      findings.push_back({.what = find_option(option)->flag() + " has no effect",
                          .why = o.precision + " needs no loss scale",
                          .change = "--precision fp16"});
}

}  // namespace bv
