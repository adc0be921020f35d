// report.html and report.json in the run's folder: curves, classes, worst mistakes, memory plan.
// Rank 0 writes them after each epoch, while training continues, and when the run ends.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "app/html_report/run_report.h"
#include "engine/run/run.h"

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
  // Shared with the background jobs. A delayed job writes the newest facts.
  struct Page {
    explicit Page(RunReport made) : report(std::move(made)) {}
    RunReport report;
    std::mutex mutex;
    Json newest;  // until a job takes it
    void write();
  };
  void write(Run&, const std::string& ending);
  // Runs `work`. An error in it must not end the run: it is reported once, and training continues.
  template <class F>
  void try_to(Run&, F work);
  void warn(Run&, const std::string& line);

  std::shared_ptr<Page> page_;
  Json facts_;
  OptionalJobs jobs_{false};
  bool warned_ = false;
};

}  // namespace bv
