#include "engine/run/run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <iomanip>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/machine.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/console/progress_line.h"
#include "engine/console/report.h"
#include "engine/model/memory.h"
#include "engine/run/image_check.h"
#include "engine/run/plans.h"
#include "engine/setup/kernels.h"
#include "engine/training/recording.h"

namespace bv {
namespace {

LoaderOptions own_loader_options(const Setup& s, bool train, Backend& backend, Output& warnings,
                                 int cores) {
  const Grid& grid = s.trainer.pipeline.grid;
  LoaderOptions options = loader_options(s, grid.replica, cores);
  options.images = grid.first();
  options.known_bad = train ? s.bad_images.train : s.bad_images.val;
  options.warn = [&warnings](const std::string& line) {
    const bool beside_bar = on_terminal() && isatty(STDERR_FILENO);
    warnings.print((beside_bar ? clear_line : "") + printable(line, line.npos) + "\n");
  };
  options.allocate = [&backend](size_t bytes) { return host_memory(backend, bytes); };
  return options;
}

}  // namespace

Run::Run(Setup given, Backend& device, Communicator* peers, int cores)
    : setup(for_rank(std::move(given), peers ? peers->rank() : 0)),
      backend(device),
      communicator(peers),
      rank(peers ? peers->rank() : 0),
      trainer(backend, communicator, setup.graph, setup.trainer, pointer_to(setup.fp32_graph)),
      train(*setup.data.train, own_loader_options(setup, true, backend, warnings, cores), true),
      folder(setup, backend, trainer, communicator, background) {
  if (setup.data.val)
    val = std::make_unique<Loader>(
        *setup.data.val, own_loader_options(setup, false, backend, warnings, cores), false);
  const Options& o = setup.options;
  batches = train.batches_per_epoch();
  updates_per_epoch = (batches + o.accumulate - 1) / o.accumulate;
  horizon = updates_of(o.epochs, updates_per_epoch);
  end = std::min(o.steps.value_or(horizon), horizon);
  schedule = schedule_of(o, o.epochs, updates_per_epoch);
  if (setup.kernels == KernelSet::hopper && rank == 0)
    setup.notes.push_back(hopper_line(record_step(setup.graph, setup.trainer), backend.kernels()));
}

// Returns the plans of all stages, so that all processes reach the same verdict.
std::vector<MemoryPlan> Run::plans() const {
  if (setup.pipeline.shape.stages == 1) return {trainer.plan()};
  return stage_plans(setup, backend);
}

bool Run::plan_only() const {
  // Processes share a machine's memory, but each has its GPU's memory for itself.
  const bool shared = setup.options.device == DeviceKind::cpu || setup.options.oversubscribe;
  const MemoryLimit limit{
      backend.memory_limit() / static_cast<size_t>(shared ? setup.local_size : 1), shared};
  const std::vector<MemoryPlan> stages = plans();
  // Rank 0's host also holds checkpoints; they count if host and device memory are the same.
  const size_t besides = setup.options.device == DeviceKind::cuda ? 0 : stages[0].checkpoints;
  const MemoryLimit left{limit.bytes - std::min(limit.bytes, besides), shared};
  const auto largest = std::ranges::max_element(stages, {}, &MemoryPlan::peak);
  std::string lacking;
  if (largest->peak() > left.bytes)
    lacking = "the plan needs " + format_bytes(largest->peak() + besides) + " per process" +
              (stages.size() > 1 ? " of stage " + std::to_string(largest - stages.begin()) : "") +
              ", but " + format_bytes(limit.bytes) + " is available" +
              what_fits(setup, backend, left);
  if (!setup.options.plan && !lacking.empty()) throw UserError(lacking);
  if (setup.options.plan && rank == 0) {
    std::cout << plan_head(setup, backend.describe(), limit.bytes) << "\n";
    for (const std::string& note : setup.notes) std::cout << printable(note, note.npos) << "\n";
    if (stages.size() > 1)
      print_stages(std::cout, setup, stages);
    else
      print_plan(std::cout, trainer.largest_chunk().graph(), trainer.largest_chunk().layout(),
                 trainer.plan());
    const std::vector<RecordedOperation> operations = record_step(setup.graph, setup.trainer);
    std::cout << "one step: " << std::fixed << std::setprecision(1) << flops_of(operations) / 1e9
              << " GFLOP\n";
    if (setup.kernels == KernelSet::hopper)
      std::cout << hopper_table(operations, backend.kernels());
    if (!lacking.empty()) std::cout << lacking << "\n";
  }
  return setup.options.plan;
}

// Only a warning: other programs may free their memory.
void Run::note_free_memory() {
  if (setup.options.device == DeviceKind::cuda) return;  // the limit there is the free memory
  const std::vector<MemoryPlan> stages = plans();
  size_t wanted = stages[0].checkpoints;  // by this machine's processes
  for (const MemoryPlan& plan : stages)
    wanted += plan.peak() * static_cast<size_t>(setup.local_size) / stages.size();
  const size_t free = free_memory_in_bytes();
  if (wanted <= free) return;
  setup.notes.push_back(
      "warning: " + format_bytes(wanted) + " is planned, but only " + format_bytes(free) +
      " of memory is free" +
      what_fits(setup, backend, {free / static_cast<size_t>(setup.local_size), true}));
}

void Run::set_starting_values() {
  const Options& o = setup.options;
  const double fresh_scale = o.loss_scale > 0 ? o.loss_scale : o.loss_scale_init;
  if (!setup.checkpoint) trainer.parameters().initialise(o.seed);
  trainer.set_state(
      {.loss_scale = setup.graph.dtype() == DType::fp16 ? static_cast<float>(fresh_scale) : 1});
  if (!setup.weights.empty()) trainer.parameters().set_weights(setup.weights);
  setup.weights.clear();
  if (!setup.checkpoint) return;
  folder.restore(trainer);
  progress = std::move(*setup.checkpoint);
  progress.optimizer.tensors.clear();
  progress.ema.tensors.clear();
  if (progress.step > end)
    throw UserError("the run in " + o.out + " has already done " + counted(progress.step, "step") +
                    "; " + (end < horizon ? "--steps" : "--epochs") + " ends it after " +
                    std::to_string(end));
}

bool Run::begin() {
  if (rank == 0) note_free_memory();
  trainer.allocate();
  set_starting_values();
  if (setup.options.profile) trainer.profile(&profile);
  if (!setup.options.trace.empty() || setup.pipeline.shape.stages > 1) {
    trace = std::make_unique<Trace>(backend, setup.options.trace.empty() ? 0 : traced_updates);
    trainer.trace(trace.get());
  }
  for (std::string& line : schedule_notes(setup.options, updates_per_epoch, progress))
    setup.notes.push_back(std::move(line));
  if (progress.step == end && progress.settled)
    setup.notes.push_back("nothing left to do: " + counted(end, "step") + " done");
  catch_stop_signals();
  // All processes must have read the unchanged run folder before anything is written.
  if (asked_to_stop()) return false;
  if (rank != 0) return true;
  console = std::make_unique<Console>(end, static_cast<int64_t>(std::ceil(setup.options.epochs)),
                                      setup.options.quiet);
  if (std::string warning = folder.begin(); !warning.empty())
    setup.notes.push_back(std::move(warning));
  return true;
}

bool Run::any_process(bool here) const {
  return communicator ? communicator->all_reduce_scalar(here) > 0 : here;
}

bool Run::asked_to_stop() {
  if (!any_process(stop_signal() != 0)) return false;
  stopped_by = stop_signal() ? stop_signal() : SIGTERM;
  return true;
}

// A list that can't be written doesn't end the run: the weights are worth more.
void Run::gather_skipped() {
  const Setup& s = setup;
  if (s.options.on_bad_image != OnBadImage::skip || s.data.kind != DataKind::photos) return;
  const auto known = [this] { return setup.bad_images.count(); };
  const int64_t before = known();
  setup.bad_images.train = union_of_ranks(train.bad_images(), communicator, backend);
  if (val) setup.bad_images.val = union_of_ranks(val->bad_images(), communicator, backend);
  if (rank != 0 || known() == before) return;
  try {
    folder.list_images();
  } catch (const WriteError& e) {
    warn(std::string(e.what()) + "; training continues");
    incomplete = true;
  }
}

void Run::warn(const std::string& line) {
  if (console) console->clear();
  warnings.print(printable(line, line.npos) + "\n");
}

bool Run::reads_weights() const {
  return std::ranges::any_of(hooks, [&](const auto& hook) { return hook->reads_weights(*this); });
}

void Run::attach(std::unique_ptr<Hook> hook) {
  Hook& attached = *hook;
  const auto later = std::ranges::find_if(
      hooks, [&](const auto& other) { return other->priority() > attached.priority(); });
  hooks.insert(later, std::move(hook));
  attached.after_hook_is_attached(*this);
}

}  // namespace bv
