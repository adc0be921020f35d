#include "engine/console/console.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/text.h"

namespace bv {

void Console::line(std::string_view text, bool important) {
  if (quiet_ && !important) return;
  bar_.clear();
  out_.print(printable(text, text.npos) + "\n");
}

void Console::step(const StepRecord& r) {
  char text[160];
  std::snprintf(text, sizeof text,
                "epoch %lld  step %lld/%lld  loss %.4f  top-1 %.4f  lr %.3g  grad norm %.3g  "
                "%.1f images/s",
                static_cast<long long>(r.epoch), static_cast<long long>(r.step),
                static_cast<long long>(total_steps_), r.loss, r.top1, r.lr, r.grad_norm,
                r.images_per_second);
  line(text);
}

void Console::epoch(const EpochRecord& r) { line(epoch_line(r, epochs_)); }

void Console::paragraph(const std::string& text, bool important) {
  if (on_terminal())
    for (const std::string& part : split(wrap(text, 0, 2, size_t(terminal_width() - 1)), '\n'))
      line(part, important);
  else
    line(text, important);
}

std::string epoch_line(const EpochRecord& r, int64_t epochs) {
  constexpr size_t columns = 79;
  const auto digits = std::max<size_t>(std::to_string(epochs).size(), 2);
  const std::string epoch = std::to_string(r.epoch);
  std::string text = "epoch " + std::string(digits - std::min(digits, epoch.size()), ' ') + epoch;
  const auto add = [&](const char* form, const std::optional<double>& value) {
    char part[64];
    if (!value) return;
    std::snprintf(part, sizeof part, form, *value);
    text += part;
  };
  const auto loss = [&](const char* name, const std::optional<double>& value) {
    if (!value) return;
    text += name;
    add(std::abs(*value) < 10 ? " %5.3f" : " %5.4g", value);
  };
  const auto percent = [](const std::optional<double>& share) {
    return share ? std::optional(100 * *share) : std::nullopt;
  };
  loss("  train", r.train_loss);
  loss("  val", r.val_loss);
  add("  top-1 %5.1f%%", percent(r.val_top1));
  if (!r.ema_loss) add("  top-5 %5.1f%%", percent(r.val_top5));
  loss("  ema", r.ema_loss);
  add(" %5.1f%%", percent(r.ema_top1));
  add("  %.0f/s", r.images_per_second);
  const std::string time = "  " + clock_text(r.seconds);
  return text.size() + time.size() <= columns ? text + time : text;
}

std::string measured_line(const EpochRecord& r) {
  std::string text;
  const auto add = [&](const char* what, const std::string& value) {
    text += "  " + std::string(what) + " " + value;
  };
  const auto time = [](double seconds) {
    char short_text[32];
    std::snprintf(short_text, sizeof short_text, "%.1f s", std::max(seconds, 0.0));
    return seconds < 99.95 ? short_text : clock_text(seconds);
  };
  const auto memory = [](int64_t bytes) {
    const bool gibi = bytes >= int64_t{1000} << 20;
    return format_number(double(bytes) / (gibi ? 1 << 30 : 1 << 20), 3) + (gibi ? " GiB" : " MiB");
  };
  if (r.eval_seconds) add("eval", time(*r.eval_seconds));
  add("saving", time(r.save_seconds));
  add("host", memory(r.host_peak_memory_bytes));
  if (r.device_peak_memory_bytes) add("device", memory(*r.device_peak_memory_bytes));
  add("planned", memory(r.peak_memory_bytes));
  return text;
}

bool on_terminal() {
  const char* kind = std::getenv("TERM");
  // mpirun reads its ranks' output through pseudo-terminals.
  return isatty(STDOUT_FILENO) && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr &&
         !(kind && std::string_view(kind) == "dumb");
}

}  // namespace bv
