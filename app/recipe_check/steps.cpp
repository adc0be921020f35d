// Checks of the number of updates, their size and their learning rate.
#include <algorithm>
#include <cmath>

#include "app/recipe_check/checks.h"
#include "base/text.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"
#include "engine/training/schedule.h"
#include "models/family.h"

namespace bv {

namespace {

constexpr int64_t few_updates = 4, few_updates_in_all = 100;
constexpr double much_left_over = 0.25;                     // of an epoch
constexpr double many_left_out = 0.1;                       // of the images
constexpr double long_warmup = 0.5, suitable_warmup = 0.2;  // of the updates
constexpr double beyond_linear = 4;
constexpr double high_for_sgd = 0.05, high_for_clipped_sgd = 0.3;

int64_t batches_of(const Setup& s) {
  return training_batches(s.data.kind, s.data.train->size(), *s.options.batch);
}

int64_t updates_per_epoch(const Setup& s) {
  const int64_t group = s.options.accumulate;
  return (batches_of(s) + group - 1) / group;
}

std::string number(double x) { return format_number(x, 3); }

bool adapts(const Options& o) { return o.optimizer != OptimizerKind::sgd; }

}  // namespace

void check_updates(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const int64_t updates = updates_per_epoch(s), all = updates_of(o.epochs, updates);
  if (updates >= few_updates && all >= few_updates_in_all) return;
  const int64_t fits = batch_for_eight_updates(s.data.train->size(), 1);
  const int64_t epochs = (few_updates_in_all + updates - 1) / updates;
  findings.push_back(
      {.what = "only " + counted(all, "update") + " (" + std::to_string(updates) + " per epoch)",
       .why = "too few to train well",
       .advice = o.accumulate > 1 ? "use --accumulate 1"
                 : updates < few_updates
                     ? "use --batch " + std::to_string(fits)
                     : "use --epochs " + std::to_string(epochs) + ", or a smaller --batch"});
}

void check_remainder(const Setup& s, Findings& findings) {
  const int64_t batches = batches_of(s), group = s.options.accumulate;
  const auto left = [&](int64_t each) { return batches % each; };
  const auto much = [&](int64_t each) { return double(left(each)) > much_left_over * batches; };
  if (batches <= group || !much(group)) return;
  int64_t fits = group;
  while (much(fits)) --fits;
  findings.push_back({.what = "the last update of an epoch has " + counted(left(group), "batch") +
                              ", the others " + std::to_string(group),
                      .why = std::to_string(batches) + " batches are not divisible by --accumulate",
                      .advice = "use --accumulate " + std::to_string(fits)});
}

// An epoch has only full batches, so a large share of a small data set may be left out. If it has
// few, the advice of check_updates counts.
void check_left_out(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const int64_t images = s.data.train->size();
  const auto left = [&](int64_t batch) {
    return images - batch * training_batches(s.data.kind, images, batch);
  };
  const int batch = *o.batch, step = std::max(1, s.replicas) * 2;  // mixing needs pairs
  if (o.left_over == LeftOver::next || updates_per_epoch(s) < few_updates ||
      double(left(batch)) <= many_left_out * double(images))
    return;
  int fits = batch;
  for (int fewer = batch / step * step; 2 * fewer >= batch && fewer > 0; fewer -= step)
    if (left(fewer) < left(fits)) fits = fewer;
  findings.push_back(
      {.what = std::to_string(left(batch)) + " of " + counted(images, "image") +
               " are left out of each epoch, different ones each time",
       .why = "only full batches of " + std::to_string(batch) + " are used",
       .advice = fits == batch ? "use a smaller --batch" : "use --batch " + std::to_string(fits)});
}

// Checked for any kind of data: at rate 0, a run learns nothing.
void check_zero_rate(const Setup& s, Findings& findings) {
  if (s.options.lr > 0) return;
  findings.push_back(
      {.what = "the learning rate is 0",
       .why = "no weight will change",
       .advice = "use --lr " + number(resolve_options({}, s.model, s.data.kind).lr)});
}

// Compares with the model's own recipe for this kind of data. SGD's rates can't be compared with
// those of Adam, which scales each step by the gradients' size.
void check_rate(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const bool chosen = o.source("lr") >= Source::named_recipe ||
                      o.source("batch") >= Source::named_recipe || o.is_explicit("local_batch");
  const Options own = resolve_options({}, s.model, s.data.kind);
  if (!chosen || !own.batch || adapts(o) != adapts(own)) return;
  const double images = double(*o.batch) * o.accumulate, linear = own.lr * images / *own.batch;
  if (o.lr <= beyond_linear * 1.01 * linear) return;
  const double times = o.lr / linear;
  findings.push_back({.what = "lr " + number(o.lr) + " is " +
                              (times < 100 ? number(times) : format_number(std::round(times), 9)) +
                              " times what suits updates of " + number(images) + " images",
                      .why = s.model.name + " trains well at " + number(own.lr) + " with " +
                             std::to_string(*own.batch) + ", and the rate scales with the images",
                      .advice = "use --lr " + number(linear)});
}

// Measured: ./launcher vit_tiny --image-size 32 --optimizer sgd --weight-decay 5e-4 --epochs 3 on
// the cpu reaches a top-1 of 80% at --lr 0.1 and of 99% at --lr 0.03; with --clip-grad 1 it reaches
// 98% at 0.1 and 30% at 0.5.
void check_sgd(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const bool clipped = o.clip_grad > 0;
  if (adapts(o) || !s.model.family->patches ||
      o.lr < (clipped ? high_for_clipped_sgd : high_for_sgd))
    return;
  findings.push_back({.what = "sgd with lr " + number(o.lr) + " hardly trains a ViT",
                      .why = "a rate for ResNets; attention's gradients need a lower one" +
                             std::string(clipped ? "" : ", or a limit to their norm"),
                      .advice = "use --optimizer adamw with its own --lr, " +
                                std::string(clipped ? "" : "--clip-grad 1, ") + "or --lr " +
                                number(high_for_sgd / 5)});
}

void check_warmup(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  const int64_t each = updates_per_epoch(s), all = updates_of(o.epochs, each);
  // --steps cuts a recipe's schedule off on purpose.
  const auto given = [&](const char* name) { return o.source(name) == Source::command_line; };
  const bool chosen = given("warmup_steps") || given("warmup_epochs"),
             cut = chosen && o.steps && *o.steps < all;
  const int64_t last = (cut ? *o.steps : all) - 1;
  const Schedule schedule = schedule_of(o, o.epochs, each);
  const double total = cut ? double(*o.steps) : schedule.total_updates;
  const char* const option = o.warmup_steps > 0 ? "--warmup-steps" : "--warmup-epochs";
  if (schedule.warmup_updates <= total) {
    const bool trial = all < few_updates_in_all || (o.steps && *o.steps < all);
    if (trial || schedule.warmup_updates <= long_warmup * total) return;
    const double fits = suitable_warmup * (o.warmup_steps > 0 ? total : total / double(each));
    findings.push_back(
        {.what = "the warm-up lasts " + std::to_string(std::llround(schedule.warmup_updates)) +
                 " of " + counted(std::llround(total), "update"),
         .why = "lr is near " + number(o.lr) + " for a short time only",
         .advice =
             std::string("use ") + option + ' ' + number(fits >= 1 ? std::floor(fits) : fits)});
    return;
  }
  findings.push_back(
      {.what = "the warm-up lasts longer than the run",
       .why = "lr reaches " + number(schedule.at(last, last / each)) + ", not " + number(o.lr),
       .advice =
           std::string("use a smaller ") + option + " or more " + (cut ? "--steps" : "--epochs")});
}

// Doesn't apply with --sync-bn, where several processes or shards compute common statistics.
void check_batch_norm(const Setup& s, Findings& findings) {
  const Options& o = s.options;
  if (!s.model.family->batch_norm || (o.sync_bn && std::max(s.replicas, o.shards) > 1)) return;
  const int local = o.local_batch.value_or(*o.batch), parts = o.micro_batches.value_or(1);
  if (local / parts > 1) return;
  findings.push_back({.what = "batch norm computes its statistics from one image",
                      .why = parts > 1        ? "a micro-batch has one"
                             : s.replicas > 1 ? "each process has one"
                                              : "a batch has one",
                      .advice = o.shards    ? "use fewer --shards"
                                : parts > 1 ? "use fewer --micro-batches"
                                            : std::string("use --local-batch 2 or more") +
                                                  (s.replicas > 1 ? ", or --sync-bn" : "")});
}

void check_pairs(const Setup& s, Findings& findings) {
  const std::optional<int> batch = s.requested.batch;
  if (!mixing_of(s.options).any() || !batch || *batch % 2 == 0) return;
  findings.push_back(
      {.what = "batch " + std::to_string(*batch) + " is odd",
       .why = "images are mixed in pairs, so it has become " + std::to_string(*s.options.batch),
       .advice = "use an even --batch"});
}

}  // namespace bv
