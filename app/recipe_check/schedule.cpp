// Checks of the learning rate's schedule.
#include "engine/training/schedule.h"

#include "app/recipe_check/checks.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr double long_tail = 0.25;  // fraction of the run
constexpr double low = 0.02;        // fraction of the peak

std::string number(double x) { return format_number(x, 6); }

// The epoch in which the curve ends or --lr-after cuts it off.
double end_of_curve(const Options& o) { return o.lr_after ? double(o.lr_after->epoch) : o.epochs; }

}  // namespace

void check_rises(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (o.schedule != Curve::cosine || !o.period_epochs) return;
  const double period = *o.period_epochs, held = o.schedule_by == ScheduleBy::epoch ? 1 : 0;
  if (end_of_curve(o) <= period + held + o.warmup_epochs) return;
  findings.push_back({.what = "the learning rate rises again from epoch " + number(period),
                      .why = "--period-epochs " + number(period) + " is half a wave of " +
                             number(2 * period) + ", the curve continues until epoch " +
                             number(end_of_curve(o)),
                      .advice = "use --period-epochs " + number(end_of_curve(o))});
}

void check_end(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const std::optional<LrAfter>& after = o.lr_after;
  if (after && double(after->epoch) <= (1 - long_tail) * o.epochs && after->lr <= low * o.lr)
    findings.push_back(
        {.what = "the schedule ends with epoch " + std::to_string(after->epoch) + " of " +
                 number(o.epochs),
         .why = "the rest has a rate of " + number(after->lr) + ", the peak is " + number(o.lr),
         .advice = "use a later --lr-after, or --epochs " + std::to_string(after->epoch + 1)});
  if (o.schedule == Curve::cosine && o.period_epochs && *o.period_epochs > end_of_curve(o))
    findings.push_back({.what = "the cosine is cut off before it has fallen",
                        .why = "--period-epochs " + number(*o.period_epochs) +
                               " is longer than its " + number(end_of_curve(o)) + " epochs",
                        .advice = "use --period-epochs " + number(end_of_curve(o))});
}

void check_milestones(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const std::string end = number(end_of_curve(o));
  const std::string why =
      (o.lr_after ? "--lr-after holds after epoch " : "the run ends with epoch ") + end;
  if (o.schedule == Curve::multistep && o.decay_milestones.back() > end_of_curve(o))
    findings.push_back({.what = "the decay at epoch " + std::to_string(o.decay_milestones.back()) +
                                " is never reached",
                        .why = why,
                        .advice = "use earlier --decay-milestones"});
  if (o.schedule == Curve::step && *o.decay_epochs >= end_of_curve(o))
    findings.push_back({.what = "the learning rate never decays",
                        .why = "--decay-epochs " + number(*o.decay_epochs) + ", and " + why,
                        .advice = "use a smaller --decay-epochs"});
}

}  // namespace bv
