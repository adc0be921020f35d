// The precision that was asked for, and the one that the run has.
#include <algorithm>
#include <cmath>

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

void check_precision_policy(const Setup& s, Findings& findings) {
  if (!s.precision_policy) return;
  const Options& o = s.options;
  const PrecisionPolicy& policy = *s.precision_policy;
  const auto last = static_cast<int64_t>(std::ceil(o.epochs));
  const std::string run = "the run ends with epoch " + std::to_string(last);
  if (policy.kind == 2 && policy.interval > last)
    findings.push_back({.what = "--amp-policy 2 decides nothing: its windows never open",
                        .why = "the first is epoch " + std::to_string(policy.interval) + ", " + run,
                        .change = "--amp-interval"});
  if (policy.kind != 2 && std::max<int64_t>(policy.start, 1) > std::min(policy.end, last))
    findings.push_back(
        {.what = "--amp-policy " + o.amp_policy + ": no epoch computes in " + o.precision,
         .why = "epochs " + std::to_string(policy.start) + " to " + std::to_string(policy.end) +
                " would, " + run,
         .change = "--amp-start, --amp-end"});
}

}  // namespace bv
