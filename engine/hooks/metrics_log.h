// metrics.jsonl in the run's folder: a line every --log-every updates and one after each epoch.
#pragma once
#include <optional>

#include "engine/run.h"

namespace bv {

class MetricsLog : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void before_train(Run& run) override {
    file_.emplace(run.setup.options.out + "/metrics.jsonl",
                  run.setup.checkpoint ? run.progress.step : -1);
  }
  void after_train_iter(Run&, StepRecord& record) override {
    if (record.due) file_->append(to_json(record));
  }
  void after_train_epoch(Run&, EpochRecord& record) override { file_->append(to_json(record)); }

 private:
  std::optional<MetricsFile> file_;
};

}  // namespace bv
