#include "app/hooks/standard_hooks.h"

#include "app/hooks/adaptive_precision.h"
#include "app/hooks/checkpoints.h"
#include "app/hooks/class_reports.h"
#include "app/hooks/lines.h"
#include "app/hooks/memory_use.h"
#include "app/hooks/metrics_log.h"
#include "app/hooks/report_page.h"
#include "app/hooks/summary.h"
#include "app/hooks/tensorboard.h"
#include "app/hooks/timers.h"
#include "app/hooks/trace_file.h"

namespace bv {

HookList standard_hooks(const Run& run) {
  HookList hooks;
  hooks.push_back(std::make_unique<Timers>());
  hooks.push_back(std::make_unique<MemoryUse>());
  if (run.setup.precision_policy) hooks.push_back(std::make_unique<AdaptivePrecision>());
  hooks.push_back(std::make_unique<Checkpoints>());
  hooks.push_back(std::make_unique<Summary>());
  if (!run.setup.options.trace.empty()) hooks.push_back(std::make_unique<TraceFile>());
  if (run.rank != 0) return hooks;
  hooks.push_back(std::make_unique<MetricsLog>());
  hooks.push_back(std::make_unique<Lines>());
  hooks.push_back(std::make_unique<ReportPage>());
  if (run.setup.options.report) hooks.push_back(std::make_unique<ClassReports>());
#if BAREVISION_TENSORBOARD
  if (run.setup.options.tensorboard == Switch::on) hooks.push_back(std::make_unique<TensorBoard>());
#endif
  if (on_terminal()) hooks.push_back(std::make_unique<Progress>());
  return hooks;
}

}  // namespace bv
