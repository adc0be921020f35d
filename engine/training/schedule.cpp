#include "engine/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/option_values.h"

namespace bv {
namespace {

constexpr double default_decay_rate = 0.1;  // timm's

std::string number(double x) { return format_number(x, 6); }

// An option that only some schedules use.
struct Belongs {
  const char* option;
  bool set;
  std::vector<Curve> schedules;
};

std::vector<Belongs> belongings(const ScheduleOptions& o) {
  using enum Curve;
  return {{"min_lr", o.min_lr > 0, {cosine, poly}},
          {"period_epochs", o.period_epochs.has_value(), {cosine}},
          {"decay_epochs", o.decay_epochs.has_value(), {step}},
          {"decay_milestones", !o.decay_milestones.empty(), {multistep}},
          {"decay_rate", o.decay_rate.has_value(), {step, multistep, poly}}};
}

// Whether `option`, which contradicts `other`, is the user's mistake: the user asked for it, and
// its source is no weaker than that of `other`. Otherwise `option` gives way.
bool stands(const Options& o, std::string_view option, std::string_view other) {
  return o.is_explicit(option) && o.source(option) >= o.source(other);
}

}  // namespace

double Schedule::at(int64_t update, int64_t epoch) const {
  if (lr_after && epoch >= lr_after->epoch) return lr_after->lr;
  // With by_epoch, all lengths are counted in epochs.
  const double unit = by_epoch ? updates_per_epoch : 1, an_epoch = updates_per_epoch / unit;
  const double now = static_cast<double>(by_epoch ? epoch : update);
  const double warmup = warmup_updates / unit, total = total_updates / unit;
  if (now < warmup) return lr * std::min(1.0, (now + 1) / warmup);
  switch (curve) {
    case Curve::constant:
      return lr;
    case Curve::step:
      return lr * std::pow(decay_rate, std::floor(now / (decay_epochs * an_epoch)));
    case Curve::multistep: {
      const auto passed = std::ranges::upper_bound(milestones, epoch + 1) - milestones.begin();
      return lr * std::pow(decay_rate, static_cast<double>(passed));
    }
    case Curve::cosine:
    case Curve::poly:
      break;
  }
  const double length = period_epochs > 0 ? period_epochs * an_epoch : total - warmup;
  if (length <= 0) return lr;
  const double progress =
      period_epochs > 0 ? (now - warmup) / length : std::min(1.0, (now - warmup) / length);
  const double share = curve == Curve::poly ? std::pow(1 - progress, decay_rate)
                                            : .5 * (1 + std::cos(std::numbers::pi * progress));
  return min_lr + (lr - min_lr) * share;
}

int64_t updates_of(double epochs, int64_t updates_per_epoch) {
  return std::max<int64_t>(1, std::llround(epochs * static_cast<double>(updates_per_epoch)));
}

Schedule schedule_of(const ScheduleOptions& o, double epochs, int64_t updates_per_epoch) {
  const auto updates = static_cast<double>(updates_per_epoch);
  return {.curve = o.schedule,
          .by_epoch = o.schedule_by == ScheduleBy::epoch,
          .lr = o.lr,
          .min_lr = o.min_lr,
          .total_updates = static_cast<double>(updates_of(epochs, updates_per_epoch)),
          .warmup_updates =
              o.warmup_steps > 0 ? static_cast<double>(o.warmup_steps) : o.warmup_epochs * updates,
          .updates_per_epoch = updates,
          .period_epochs = o.period_epochs.value_or(0),
          .decay_epochs = o.decay_epochs.value_or(0),
          .milestones = o.decay_milestones,
          .decay_rate = o.decay_rate.value_or(default_decay_rate),
          .lr_after = o.lr_after};
}

void check_schedule(Options& o) {
  for (const auto& [option, set, schedules] : belongings(o)) {
    if (!set || std::ranges::find(schedules, o.schedule) != schedules.end()) continue;
    std::vector<std::string> names;
    for (const Curve curve : schedules) names.push_back(word_of(curve));
    if (stands(o, option, "schedule"))
      throw UserError(find_option(option)->flag() + " needs --schedule " + join(names, " or ") +
                      ", not " + word_of(o.schedule));
    unset(o, option);
  }
  if (o.schedule == Curve::step && !o.decay_epochs)
    throw UserError("--schedule step needs --decay-epochs, from one decay to the next");
  if (o.schedule == Curve::multistep && o.decay_milestones.empty())
    throw UserError("--schedule multistep needs --decay-milestones: A,B,.. in epochs");
  if (std::ranges::adjacent_find(o.decay_milestones, std::greater_equal{}) !=
      o.decay_milestones.end())
    throw UserError("--decay-milestones must increase: each later than the previous one");
  if (o.min_lr > o.lr) {
    if (stands(o, "min_lr", "lr"))
      throw UserError("--min-lr " + number(o.min_lr) + " is above --lr " + number(o.lr));
    unset(o, "min_lr");
  }
  if (!o.lr_after || static_cast<double>(o.lr_after->epoch) < o.epochs) return;
  if (stands(o, "lr_after", "epochs"))
    throw UserError("--lr-after " + o.lr_after->text + " never begins: the run ends after " +
                    number(o.epochs) + (o.epochs == 1 ? " epoch" : " epochs") + " (--epochs)");
  o.lr_after.reset();
}

std::string schedule_text(const ScheduleOptions& o) {
  const double rate = o.decay_rate.value_or(default_decay_rate);
  std::vector<std::string> details;
  if (o.period_epochs) details.push_back("period " + number(*o.period_epochs) + " epochs");
  if (o.schedule == Curve::step)
    details.push_back("x " + number(rate) + " every " + number(*o.decay_epochs) + " epochs");
  if (o.schedule == Curve::multistep) {
    std::vector<std::string> epochs, passed;  // PyTorch counts the epochs that have passed
    for (const int epoch : o.decay_milestones) {
      epochs.push_back(std::to_string(epoch));
      passed.push_back(std::to_string(epoch - 1));
    }
    details.push_back("x " + number(rate) + " as epochs " + join(epochs, ", ") +
                      " begin, PyTorch's milestones " + join(passed, ", "));
  }
  if (o.schedule == Curve::poly) details.push_back("power " + number(rate));
  if (o.min_lr > 0) details.push_back("minimum " + number(o.min_lr));
  std::string text =
      word_of(o.schedule) + (details.empty() ? "" : " (" + join(details, ", ") + ")");
  if (o.lr_after)
    text +=
        ", then " + number(o.lr_after->lr) + " from epoch " + std::to_string(o.lr_after->epoch + 1);
  return text;
}

std::vector<std::string> schedule_notes(const Options& o, int64_t updates_per_epoch,
                                        const Checkpoint& at) {
  std::vector<std::string> notes;
  const auto short_number = [](double x) { return format_number(x, 3); };
  const Schedule schedule = schedule_of(o, o.epochs, updates_per_epoch);
  const int64_t last = updates_of(o.epochs, updates_per_epoch) - 1;
  const bool resumed = !at.options.empty();  // for new runs, the recipe check warns
  if (resumed && schedule.warmup_updates > schedule.total_updates)
    notes.push_back("warning: the warm-up lasts longer than the run: lr reaches " +
                    short_number(schedule.at(last, last / updates_per_epoch)) + ", not " +
                    short_number(o.lr) + " (--warmup-epochs, --epochs)");
  const auto kept = at.options.find("epochs");
  if (kept == at.options.end() || kept->second.empty() || at.step > last) return notes;
  const double before = parse_number(kept->second[0]).value_or(o.epochs);
  const double was = schedule_of(o, before, updates_per_epoch).at(at.step, at.epoch),
               is = schedule.at(at.step, at.epoch);
  if (was != is)
    notes.push_back("the " + (o.schedule == Curve::poly ? "polynomial" : word_of(o.schedule)) +
                    " now ends with epoch " + format_number(o.epochs) + ", not " +
                    format_number(before) + ": lr continues at " + short_number(is) + ", not " +
                    short_number(was));
  return notes;
}

}  // namespace bv
