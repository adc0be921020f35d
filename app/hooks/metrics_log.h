// metrics.jsonl in the run's folder: a line every --log-every updates, a line after each epoch and
// one for each restart by the launcher.
#pragma once
#include <optional>

#include "base/files/file_io.h"
#include "comm/processes/restart.h"
#include "engine/run/run.h"

namespace bv {

class MetricsLog : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void before_train(Run&) override;
  void after_train_iter(Run& run, StepRecord& record) override {
    if (record.due) write(run, with_time(to_json(record)));
  }
  void after_train_epoch(Run& run, EpochRecord& record) override {
    write(run, with_time(to_json(record)));
  }

 private:
  static std::string with_time(std::string json);
  static std::string path_of(const Run&);
  void write(Run&, const Restart&);
  void write(Run&, const std::string& json);

  std::optional<LogFile> file_;  // empty after a failed write
};

}  // namespace bv
