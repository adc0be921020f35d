// The run for TensorBoard: curves of what metrics.jsonl has, the options as text, and the first
// training images as the model gets them. `tensorboard --logdir RUN` shows it, live too.
#pragma once
#include <optional>

#include "engine/run.h"
#include "engine/tensorboard/event_file.h"

namespace bv {

class TensorBoard : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void before_train(Run&) override;
  void after_train_iter(Run&, StepRecord&) override;
  void after_train_epoch(Run&, EpochRecord&) override;

 private:
  void write_options(const Run&, int64_t step);
  void write_first_images(Run&);
  template <class F>
  void write(Run&, F add);

  std::optional<EventFile> file_;
  bool given_up_ = false;  // it can't be written
};

}  // namespace bv
