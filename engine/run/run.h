// A run: everything that the training loop and its hooks work on.
#pragma once
#include <unistd.h>

#include <memory>
#include <type_traits>

#include "comm/communicator.h"
#include "data/loader.h"
#include "engine/console/console.h"
#include "engine/console/output.h"
#include "engine/run/hooks.h"
#include "engine/run/run_folder.h"
#include "engine/setup/setup.h"
#include "engine/trace/trace.h"
#include "engine/training/schedule.h"
#include "kernels/backend.h"

namespace bv {

struct Run {
  Run(Setup, Backend&, Communicator*, int cores);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { folder.abandon(); }  // background jobs use members that are destroyed next

  // True: --plan was given, and its output is printed. Otherwise refuses a plan that doesn't fit.
  bool plan_only() const;
  // Allocates memory, sets the starting values, opens the run's folder. Collective. From then on, a
  // stop signal only sets a request. False: a signal arrived before, and the folder is unchanged.
  bool begin();
  // Inserts the hook by priority, after others of the same priority.
  void attach(std::unique_ptr<Hook>);
  // Calls all hooks: run.at(&Hook::after_train_epoch, record).
  template <class... P>
  void at(void (Hook::*point)(Run&, P...), std::type_identity_t<P>... values) {
    for (const auto& hook : hooks) (hook.get()->*point)(*this, values...);
  }
  // Whether this evaluation, of the weights or (averaged) of their moving average, chooses best/.
  bool chooses_best(bool averaged) const { return averaged == (setup.options.ema > 0); }
  bool any_process(bool here) const;  // whether `here` holds in any process; collective
  // Whether any process was asked to stop; sets stopped_by. Collective.
  bool asked_to_stop();
  // Adds the images that any process has skipped so far to setup.bad_images. Collective.
  void gather_skipped();
  bool reads_weights() const;          // whether a hook reads them after this update
  void warn(const std::string& line);  // on standard error; clears the bar first
  // Runs `work` in a section of --profile.
  template <class F>
  void in_section(const char* name, F work) {
    timed(setup.options.profile ? &profile : nullptr, backend, name, work);
  }

  Setup setup;
  Backend& backend;
  Communicator* communicator;  // null: one process
  int rank;
  Output warnings{STDERR_FILENO};
  std::unique_ptr<Console> console;  // of rank 0
  std::unique_ptr<Trace> trace;      // null: nothing is traced
  Trainer trainer;
  Loader train;
  std::unique_ptr<Loader> val;
  Background background;  // writes files while training continues
  RunFolder folder;
  Schedule schedule{};
  Profile profile{setup.started};
  HookList hooks;

  int64_t batches, updates_per_epoch;  // per epoch
  int64_t horizon;                     // updates of the schedule
  int64_t end;                         // updates of the run; the same on all ranks
  Checkpoint progress;                 // without weights and optimizer state
  int stopped_by = 0;                  // the signal
  bool asks_to_save = false;           // of rank 0: sent with the next update
  bool save_due = false;               // rank 0 asked for a checkpoint; the same on all ranks
  double save_seconds = 0;             // waiting for checkpoints, since the last epoch's record
  bool incomplete = false;             // a log couldn't be written completely

 private:
  std::vector<MemoryPlan> plans() const;  // by stage
  void note_free_memory();
  void set_starting_values();
};

}  // namespace bv
