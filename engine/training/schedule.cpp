#include "engine/training/schedule.h"

#include "engine/base/text.h"

namespace bv {

int64_t updates_of(double epochs, int64_t updates_per_epoch) {
  return std::max<int64_t>(1, std::llround(epochs * static_cast<double>(updates_per_epoch)));
}

Schedule schedule_of(const Options& o, double epochs, int64_t updates_per_epoch) {
  const auto updates = static_cast<double>(updates_per_epoch);
  return {.cosine = o.schedule == "cosine",
          .by_epoch = o.schedule_by == "epoch",
          .lr = o.lr,
          .total_updates = static_cast<double>(updates_of(epochs, updates_per_epoch)),
          .warmup_updates =
              o.warmup_steps > 0 ? static_cast<double>(o.warmup_steps) : o.warmup_epochs * updates,
          .updates_per_epoch = updates};
}

std::vector<std::string> schedule_notes(const Options& o, int64_t updates_per_epoch,
                                        const Checkpoint& at) {
  std::vector<std::string> notes;
  const auto number = [](double x) { return format_number(x, 3); };
  const Schedule schedule = schedule_of(o, o.epochs, updates_per_epoch);
  const int64_t last = updates_of(o.epochs, updates_per_epoch) - 1;
  if (schedule.warmup_updates > schedule.total_updates)
    notes.push_back("warning: the warm-up lasts longer than the run: lr reaches " +
                    number(schedule.at(last, last / updates_per_epoch)) + ", not " + number(o.lr) +
                    " (--warmup-epochs, --epochs)");
  const auto kept = at.options.find("epochs");
  if (kept == at.options.end() || kept->second.empty() || at.step > last) return notes;
  const double before = parse_number(kept->second[0]).value_or(o.epochs);
  const double was = schedule_of(o, before, updates_per_epoch).at(at.step, at.epoch),
               is = schedule.at(at.step, at.epoch);
  if (was != is)
    notes.push_back("the cosine now ends with epoch " + format_number(o.epochs) + ", not " +
                    format_number(before) + ": lr continues at " + number(is) + ", not " +
                    number(was));
  return notes;
}

}  // namespace bv
