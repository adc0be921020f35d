#include "engine/console/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <utility>

#include "base/text.h"
#include "engine/model/plan.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"
#include "engine/training/schedule.h"
#include "models/family.h"

namespace bv {

namespace {

// "adamw, lr 0.0005, 2 epochs of warm-up, cosine, weight decay 0.05; batch 64, 30 epochs"
std::string recipe(const Options& o) {
  const auto number = [](double x) { return format_number(x, 6); };
  const std::string warmup =
      o.warmup_steps > 0 ? counted(o.warmup_steps, "update")
      : o.warmup_epochs > 0
          ? number(o.warmup_epochs) + (o.warmup_epochs == 1 ? " epoch" : " epochs")
          : "";
  std::string text =
      word_of(o.optimizer) + ", lr " + number(o.lr) +
      (warmup.empty() ? "" : ", " + warmup + " of warm-up") + ", " + schedule_text(o) +
      ", weight decay " + number(o.weight_decay) + "; batch " + std::to_string(*o.batch) +
      (o.accumulate > 1 ? " x " + std::to_string(o.accumulate) : "") + ", " + number(o.epochs) +
      (o.epochs == 1 ? " epoch" : " epochs") + ", augment " + augmentation_text(o);
  if (o.label_smoothing > 0) text += ", label smoothing " + number(o.label_smoothing);
  if (o.clip_grad > 0) text += ", clip " + number(o.clip_grad);
  if (o.layer_decay != 1) text += ", layer decay " + number(o.layer_decay);
  if (o.ema > 0) text += ", moving average " + number(o.ema);
  if (o.amp_policy != AmpPolicy::none)
    text += ", " + word_of(o.precision) + " or fp32 by --amp-policy " + word_of(o.amp_policy);
  return text;
}

std::string first_names(std::span<const std::string> names) {
  constexpr size_t max = 12;
  return join(names.first(std::min(max, names.size())), ", ") + (names.size() > max ? ", ..." : "");
}

// " in 4 micro-batches of 8", unless the pipeline's line says so
std::string in_micro_batches(const Setup& s) {
  const Pipeline& p = s.pipeline;
  if (s.options.shards)
    return " in " + counted(p.shape.micro_batches, "shard") + " of " +
           std::to_string(p.micro_batch) + " (of " + std::to_string(s.options.shards) + ")";
  if (p.shape.micro_batches == 1 || p.shape.stages > 1) return "";
  return " in " + counted(p.shape.micro_batches, "micro-batch") + " of " +
         std::to_string(p.micro_batch);
}

// "12 buckets of at most 25.0 MiB on 1 stream, 2d all-reduce"
std::string gradients(const Setup& s, const RunHead& head) {
  return counted(static_cast<int64_t>(head.gradient_buckets), "bucket") + " of at most " +
         format_bytes(static_cast<size_t>(*s.options.bucket_bytes)) + " on " +
         counted(s.options.comm_streams, "stream") + ", " +
         (s.options.zero && s.replicas > 1 ? "reduce-scatter (--zero 1)"
                                           : word_of(s.all_reduce) + " all-reduce") +
         (s.options.reduce_dtype == DType::fp32 ? "" : " in " + word_of(s.options.reduce_dtype));
}

}  // namespace

std::vector<std::string> head_lines(const Setup& s, const RunHead& head) {
  const Options& o = s.options;
  const std::string size = std::to_string(*o.image_size);
  std::vector<std::string> lines = {
      s.model.name + ": " + std::to_string(s.graph.parameter_count()) + " parameters, " + size +
          "x" + size + " images" +
          (o.patch_size ? " in patches of " + std::to_string(*o.patch_size) : ""),
      "device: " + head.device + "; " + counted(s.world, "process") + ", local batch " +
          std::to_string(*o.local_batch) + in_micro_batches(s) +
          (o.precision == DType::fp32 ? "" : ", " + word_of(o.precision)),
      "data: " + description_without(s.bad_images, s.data),
      "classes: " + first_names(s.data.classes),
      "recipe: " + (o.recipe.empty() ? "" : o.recipe + ": ") + recipe(o),
      "memory: " + format_bytes(head.peak_bytes) + " planned per process (--plan shows it)",
      "run: " + o.out + ", " + counted(head.steps_end, "step") +
          (head.steps_done ? ", resumed after step " + std::to_string(head.steps_done) : "")};
  if (head.gradient_buckets > 0)
    lines.insert(lines.begin() + 2, "gradients: " + gradients(s, head));
  if (s.pipeline.shape.stages > 1)
    lines.insert(lines.begin() + 2, "pipeline: " + describe(s.pipeline));
  if (!s.nodes.empty()) lines.insert(lines.begin() + 2, "nodes: " + s.nodes);
  lines.insert(lines.end(), s.notes.begin(), s.notes.end());
  lines.insert(lines.end(), s.findings.begin(), s.findings.end());
  return lines;
}

std::string plan_head(const Setup& s, const std::string& device, size_t limit) {
  const Options& o = s.options;
  const std::string size = std::to_string(*o.image_size);
  return s.model.name + ", " + size + "x" + size + " images, batch " + std::to_string(*o.batch) +
         " on " + counted(s.world, "process") + " (" + std::to_string(*o.local_batch) + " each" +
         in_micro_batches(s) + "), " + word_of(o.precision) + (s.fp32_graph ? " and fp32" : "") +
         "; " + device + ", " + format_bytes(limit) + " of memory for each process";
}

std::string val_loss_note(const Setup& s, double val_loss, int64_t updates) {
  const auto number = [](double x) { return format_number(x, 3); };
  const size_t classes = s.data.classes.size();
  const double guessing = std::log(static_cast<double>(classes));
  const std::string far = "val loss " + number(val_loss) + " is far above ln(" +
                          std::to_string(classes) + ") = " + number(guessing) +
                          ", that of random guessing: ";
  // Batch norm's running statistics move by a tenth per update; early on, initial values dominate.
  const bool young = s.model.family->batch_norm && updates < 100;
  if (!(val_loss > guessing * (young ? 10 : 100))) return "";
  if (young)
    return far + "after " + counted(updates, "update") +
           " batch norm's running statistics lag behind the weights; more updates, or a smaller "
           "--lr, help";
  const Options& o = s.options;
  const Options recipe = resolve_options({}, s.model, s.data.kind);
  const int64_t images = int64_t{*o.batch} * o.accumulate;
  const bool above = recipe.batch && o.lr * *recipe.batch > 1.01 * recipe.lr * double(images);
  return "warning: " + far + "lr " + number(o.lr) + " is likely too large" +
         (above ? " for batch " + std::to_string(images) + " (the recipe's " + number(recipe.lr) +
                      " is for " + std::to_string(*recipe.batch) + ")"
                : "");
}

std::vector<std::string> end_lines(const Options& o, const RunEnd& end) {
  const std::string command = own_command() + " --resume " + shell_word(o.out);
  if (end.stopped)
    return {"stopped after step " + std::to_string(end.step) + "; saved. Resume with: " + command};
  const std::string more = end.capped ? " --steps " + std::to_string(2 * end.step)
                                      : " --epochs " + format_number(2 * o.epochs);
  const std::string file = o.ema > 0 ? "/ema.safetensors" : "/weights.safetensors";
  return {"weights: " + o.out + "/last" + file +
              (end.has_best ? ", best: " + o.out + "/best" + file : ""),
          "train longer with: " + command + more};
}

std::vector<std::string> profile_lines(const std::map<std::string, double>& profile) {
  std::vector<std::pair<double, std::string>> rows;
  double total = 0;
  for (const auto& [type, seconds] : profile) {
    rows.emplace_back(seconds, type);
    total += seconds;
  }
  std::sort(rows.rbegin(), rows.rend());
  rows.emplace_back(total, "total");
  std::vector<std::string> lines;
  for (const auto& [seconds, type] : rows) {
    char text[80];
    std::snprintf(text, sizeof text, "%-22s %8.3f s %5.1f%%", type.c_str(), seconds,
                  100 * seconds / total);
    lines.emplace_back(text);
  }
  return lines;
}

}  // namespace bv
