// --report: after each evaluation's line, prints precision, recall and F1 of each class.
#pragma once
#include <string>
#include <vector>

#include "base/text.h"
#include "engine/console/class_report.h"
#include "engine/run/run.h"

namespace bv {

class ClassReports : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  bool reads_predictions(const Run& run, bool averaged) const override {
    return run.chooses_best(averaged);
  }
  void after_test_epoch(Run& run, bool averaged, const EvaluationSums&) override {
    if (reads_predictions(run, averaged))
      lines_ = split(class_report(run.trainer.predictions(), run.setup.data.classes), '\n');
  }
  void after_train_epoch(Run& run, EpochRecord&) override {
    for (const std::string& line : lines_) run.console->line(line);
    lines_.clear();
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace bv
