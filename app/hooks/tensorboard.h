// Logs the run for TensorBoard: the curves of metrics.jsonl, the options as text, the first
// training images as the model sees them, and for evaluations the surest mistakes and, as text, the
// confusion matrix. `tensorboard --logdir RUN` shows them, even during the run.
#pragma once
#include <memory>

#include "app/tensorboard/event_file.h"
#include "engine/run/run.h"

namespace bv {

class TensorBoard : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void before_train(Run&) override;
  void after_train(Run&) override;
  void after_train_iter(Run&, StepRecord&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
  void after_test_epoch(Run&, bool averaged, const EvaluationSums&) override;
  bool reads_predictions(const Run& run, bool averaged) const override {
    return run.chooses_best(averaged);
  }

 private:
  // The run's background thread writes the file.
  void write_options(Run&, int64_t step);
  void write_first_images(Run&);
  void write_image(Run&, int64_t step, std::string_view tag, Image);
  template <class F>
  void write(Run&, F add);
  void tell_failure(Run&);

  std::shared_ptr<EventFile> file_;
  unsigned evaluations_ = 0;  // in this process
  OptionalJobs jobs_{true};
};

}  // namespace bv
