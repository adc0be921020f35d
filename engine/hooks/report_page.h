// report.html and report.json in the run's folder: curves, classes, worst mistakes, plan of memory.
// Written after each epoch and when the run ends, by rank 0.
#pragma once
#include <optional>
#include <string>

#include "engine/page/run_report.h"
#include "engine/run.h"

namespace bv {

class ReportPage : public Hook {
 public:
  int priority() const override { return priority::closing; }
  bool reads_predictions(const Run&, bool averaged) const override;
  void before_train(Run&) override;
  void after_test_epoch(Run&, bool averaged, const EvaluationSums&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
  void after_train(Run&) override;
  void after_error(Run&, const std::string& line) override;

 private:
  void write(Run&, const std::string& ending);
  // The page must not cost the run its weights: an error is reported, once, and the run continues.
  template <class F>
  void try_to(Run&, F work);

  std::optional<RunReport> report_;
  bool warned_ = false;
};

}  // namespace bv
