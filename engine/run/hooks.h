// The points of a run where hooks do what isn't training: measuring, logging, saving. All hooks are
// in one list, lower priorities first; the loop calls the whole list at each point. Hooks get
// values that were read back anyway, so they don't make the host wait for the device. The section
// "Write a hook" of docs/internals.md has an example; app/hooks/ has the program's own hooks, which
// don't use all points.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/console/log.h"

namespace bv {

struct Run;             // engine/run/run.h
struct EvaluationSums;  // engine/inference/evaluator.h

// Hooks with lower numbers fill in records that hooks with higher numbers read.
namespace priority {
inline constexpr int measuring = 0, usual = 10, reporting = 20, saving = 30, closing = 40;
}

// Train: from before_train to after_train or after_error, once per process. before_train_epoch is
// also called for a resumed epoch, after_train_epoch also for one that is cut short: each `before`
// has its `after`, unless an error occurs, or a signal arrives in an epoch's last step or its
// evaluation (then the resumed process calls after_train_epoch).
// Iter: in training, an update with all its micro-steps; in a test, a batch.
// Test: an evaluation. It has one epoch for the weights and, with --ema, one for their average.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual int priority() const { return priority::usual; }

  virtual void after_hook_is_attached(Run&) {}
  virtual void before_train(Run&) {}
  virtual void after_train(Run&) {}
  // Called instead of after_train when the run fails with this line.
  virtual void after_error(Run&, const std::string& /*line*/) {}
  virtual void before_train_epoch(Run&) {}
  virtual void after_train_epoch(Run&, EpochRecord&) {}
  virtual void before_train_iter(Run&) {}
  // The update's result has been read. The next update may be in flight: see reads_weights().
  virtual void after_train_iter(Run&, StepRecord&) {}
  virtual void before_test(Run&) {}
  virtual void after_test(Run&, EpochRecord&) {}
  virtual void before_test_epoch(Run&, bool /*averaged*/) {}
  virtual void after_test_epoch(Run&, bool /*averaged*/, const EvaluationSums&) {}
  virtual void before_test_iter(Run&, int64_t /*batch*/) {}
  virtual void after_test_iter(Run&, int64_t /*batch*/) {}
  // A checkpoint is complete on disk, possibly some steps after the save began.
  virtual void after_save(Run&, const SaveRecord&) {}

  // Whether after_train_iter reads the weights after this update (run.progress.step). If so, the
  // loop waits for the update before it starts the next.
  virtual bool reads_weights(const Run&) const { return false; }
  // Whether after_test_epoch reads run.trainer.predictions(), the model's predictions for each
  // image. Only rank 0 has them; they are computed if a hook on any rank returns true.
  virtual bool reads_predictions(const Run&, bool /*averaged*/) const { return false; }
};

using HookList = std::vector<std::unique_ptr<Hook>>;

}  // namespace bv
