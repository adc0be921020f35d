// Checks of --precision, where the run's differs from the requested one, and of --amp-policy.
#include <algorithm>
#include <cmath>

#include "app/recipe_check/checks.h"
#include "base/text.h"
#include "engine/options/option_table.h"

namespace bv {

void check_precision(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (s.requested.precision && s.requested.precision != o.precision)
    findings.push_back(
        {.what =
             "computes in " + word_of(o.precision) + ", not in " + word_of(s.requested.precision),
         .why = "the " + word_of(o.device) + " device lacks it",
         .advice = "use --precision " + word_of(o.precision) + " or another --device"});
  // Only the command line counts: a config file has all of these options.
  for (const char* option : {"loss_scale", "loss_scale_init", "loss_scale_growth_interval"})
    if (o.source(option) == Source::command_line && o.precision != DType::fp16)
      findings.push_back({.what = find_option(option)->flag() + " has no effect",
                          .why = word_of(o.precision) + " needs no loss scale",
                          .advice = "leave it out"});
}

void check_policy(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (o.amp_policy == AmpPolicy::none) return;
  const std::string end = ", the run ends with epoch " + format_number(o.epochs, 6);
  if (o.amp_policy == AmpPolicy::windows) {
    if (o.amp_interval > o.epochs)
      findings.push_back(
          {.what = "--amp-policy 2 never decides anything",
           .why = "its first window begins with epoch " + std::to_string(o.amp_interval) + end,
           .advice = "use a smaller --amp-interval"});
    return;
  }
  if (std::max(o.amp_start, 1) <= std::min<double>(*o.amp_end, std::ceil(o.epochs))) return;
  findings.push_back(
      {.what = "--amp-policy " + word_of(o.amp_policy) + " computes no epoch in 16 bits",
       .why = "its 16-bit epochs are " + std::to_string(o.amp_start) + " to " +
              std::to_string(*o.amp_end) + end,
       .advice = "use an --amp-start and --amp-end within the run"});
}

}  // namespace bv
