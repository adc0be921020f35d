#include "engine/console/console.h"

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

void Console::epoch(const EpochRecord& r) {
  const auto figure = [](const char* name, const std::optional<double>& value) {
    char text[64] = "";
    if (value) std::snprintf(text, sizeof text, "  %s %.4f", name, *value);
    return std::string(text);
  };
  char rate[96];
  if (r.images_per_second)
    std::snprintf(rate, sizeof rate, "  %.1f images/s  %.1f s", *r.images_per_second, r.seconds);
  else
    std::snprintf(rate, sizeof rate, "  %.1f s", r.seconds);
  line("epoch " + std::to_string(r.epoch) + " at step " + std::to_string(r.step) + ":" +
       figure("train loss", r.train_loss) + figure("train top-1", r.train_top1) +
       figure("val loss", r.val_loss) + figure("val top-1", r.val_top1) +
       figure("val top-5", r.val_top5) + figure("ema loss", r.ema_loss) +
       figure("ema top-1", r.ema_top1) + rate);
}

bool on_terminal() {
  const char* kind = std::getenv("TERM");
  // mpirun collects its ranks' output through pseudo-terminals.
  return isatty(STDOUT_FILENO) && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr &&
         !(kind && std::string_view(kind) == "dumb");
}

}  // namespace bv
