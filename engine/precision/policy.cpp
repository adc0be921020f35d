#include "engine/precision/policy.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/option_table.h"

namespace bv {
namespace {

std::string number(double x) { return format_number(x, 4); }

// Decides anew under policy 1.
void renew(PrecisionState& s, int64_t epoch, double lr) {
  const auto [before, last] = s.losses;
  const bool lr_rose = lr > s.lr, loss_rose = last > 1.1 * before;  // false while unknown (NaN)
  s.sixteen_bits = !lr_rose && !loss_rose;
  s.reason = lr_rose     ? "lr rose from " + number(s.lr) + " to " + number(lr)
             : loss_rose ? "loss rose from " + number(before) + " to " + number(last)
                         : "neither lr nor loss rose";
  s.renewed = epoch;
  s.lr = lr;
}

// Decides under policy 2, within a window.
void follow_loss(PrecisionState& s) {
  const auto [before, last] = s.losses;
  if (std::isnan(before)) {
    s.reason = "no two losses to compare yet";
    return;
  }
  const double fall = (before - last) / before;
  s.sixteen_bits = fall >= .001 && fall <= .5;
  s.reason = "loss went from " + number(before) + " to " + number(last);
}

}  // namespace

void PrecisionState::add_loss(double loss) {
  losses[0] = losses[1];
  losses[1] = std::isfinite(loss) ? loss : HUGE_VAL;
}

PrecisionState decide(const PrecisionPolicy& policy, const PrecisionState& before, int64_t epoch,
                      double lr) {
  PrecisionState s = before;
  s.epoch = epoch;
  if (policy.kind == AmpPolicy::windows) {
    if (epoch < policy.interval)
      s.reason = "before the first window, epoch " + std::to_string(policy.interval);
    else if (epoch % policy.interval < policy.interval_hold)
      follow_loss(s);
    return s;
  }
  const bool inside = policy.start <= epoch && epoch <= policy.end;
  if (inside && policy.kind == AmpPolicy::hold) {
    if (s.renewed == 0 || epoch - s.renewed >= policy.hold) renew(s, epoch, lr);
    return s;
  }
  s.sixteen_bits = inside;
  s.reason = std::string(inside ? "within" : "not within") + " epochs " +
             std::to_string(policy.start) + " to " + std::to_string(policy.end);
  return s;
}

std::optional<PrecisionPolicy> precision_policy(Options& o, std::vector<std::string>& notes) {
  const auto refuse = [&o](const std::string& why) {
    throw UserError("--amp-policy " + word_of(o.amp_policy) + why);
  };
  if (o.amp_policy == AmpPolicy::none) {
    for (const char* option :
         {"amp_start", "amp_end", "amp_hold", "amp_interval", "amp_interval_hold"})
      if (o.source(option) == Source::command_line)
        throw UserError(find_option(option)->flag() + " needs --amp-policy " +
                        (std::string_view(option).starts_with("amp_interval") ? "2"
                         : option == std::string_view("amp_hold")             ? "1"
                                                                              : "0 or 1"));
    return {};
  }
  const bool by_epoch = o.amp_policy != AmpPolicy::windows;
  if (by_epoch && !o.amp_end) refuse(" needs --amp-end N, its last epoch in 16 bits");
  if (o.precision == DType::fp32) {
    if (o.is_explicit("amp_policy"))
      refuse(" switches between fp32 and --precision, which is fp32; try fp16 or bf16");
    notes.push_back("the recipe's --amp-policy " + word_of(o.amp_policy) +
                    " is not used: --precision is fp32");
    o.amp_policy = AmpPolicy::none;
    return {};
  }
  return PrecisionPolicy{.kind = o.amp_policy,
                         .start = o.amp_start,
                         .end = o.amp_end.value_or(0),
                         .hold = o.amp_hold.value_or(1),
                         .interval = o.amp_interval,
                         .interval_hold = o.amp_interval_hold};
}

}  // namespace bv
