#include "app/hooks/lines.h"

#include <algorithm>

#include "engine/console/report.h"

namespace bv {

void Lines::before_train(Run& run) {
  for (const std::string& line :
       head_lines(run.setup, {.device = run.backend.describe(),
                             .peak_bytes = run.trainer.plan().peak(),
                             .gradient_buckets = run.trainer.gradient_buckets(),
                             .steps_done = run.progress.step,
                             .steps_end = run.end}))
    run.console->paragraph(
        line, line.starts_with("warning: ") || std::ranges::count(run.setup.findings, line) > 0);
}

void Lines::after_train_epoch(Run& run, EpochRecord& record) {
  run.console->epoch(record);
  run.console->line(measured_line(record));
  const std::string note =
      record.val_loss ? val_loss_note(run.setup, *record.val_loss, record.step) : "";
  if (!note.empty()) run.console->paragraph(note);
}

}  // namespace bv
