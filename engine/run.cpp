#include "engine/run.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/hooks/trace_file.h"
#include "engine/recording.h"
#include "engine/report/report.h"
#include "engine/training/memory.h"
#include "kernels/devices/machine.h"

namespace bv {
namespace {

LoaderOptions own_loader_options(const Setup& s, bool train, Backend& backend, Output& warnings,
                                 int replica, int cores) {
  LoaderOptions options = loader_options(s, replica, cores);
  options.known_bad = train ? s.bad_images.train : s.bad_images.val;
  options.warn = [&warnings](const std::string& line) {
    warnings.print(printable(line, line.npos) + "\n");
  };
  options.allocate = [&backend](size_t bytes) { return host_memory(backend, bytes); };
  return options;
}

}  // namespace

Run::Run(Setup given, Backend& device, Communicator* peers, int cores)
    : setup(std::move(given)),
      backend(device),
      communicator(peers),
      rank(peers ? peers->rank() : 0),
      trainer(backend, communicator, setup.graph, setup.trainer, pointer_to(setup.fp32_graph)),
      train(*setup.data.train, own_loader_options(setup, true, backend, warnings, rank, cores),
            true),
      folder(setup, communicator) {
  if (setup.data.val)
    val = std::make_unique<Loader>(
        *setup.data.val, own_loader_options(setup, false, backend, warnings, rank, cores), false);
  const Options& o = setup.options;
  batches = train.batches_per_epoch();
  updates_per_epoch = (batches + o.accumulate - 1) / o.accumulate;
  horizon = updates_of(o.epochs, updates_per_epoch);
  end = std::min(o.steps.value_or(horizon), horizon);
  schedule = schedule_of(o, o.epochs, updates_per_epoch);
}

bool Run::plan_only() const {
  // Processes share a machine's memory; each has a GPU's alone.
  const bool shared = setup.options.device == "cpu" || setup.options.oversubscribe;
  const size_t peak = trainer.plan().peak(),
               limit = backend.memory_limit() / static_cast<size_t>(shared ? setup.local_size : 1);
  if (setup.options.plan) {
    if (rank == 0) {
      std::cout << plan_head(setup, backend.describe(), limit) << "\n";
      for (const std::string& note : setup.notes) std::cout << printable(note, note.npos) << "\n";
      print_plan(std::cout, trainer.largest_graph(), trainer.largest_layout(), trainer.plan());
      std::cout << "one step: " << std::fixed << std::setprecision(1)
                << flops_of(record_step(setup.graph, setup.trainer)) / 1e9 << " GFLOP\n";
    }
    return true;
  }
  if (peak > limit)
    throw UserError("the plan needs " + format_bytes(peak) + " per process, but " +
                    format_bytes(limit) + " are available" + what_fits(setup, backend, limit));
  return false;
}

// Memory that others use may be freed, or not.
void Run::note_free_memory() {
  if (setup.options.device == "cuda") return;  // its limit is what is free
  const size_t wanted = trainer.plan().peak() * static_cast<size_t>(setup.local_size),
               free = free_memory_in_bytes();
  if (wanted <= free) return;
  setup.notes.push_back("warning: " + format_bytes(wanted) + " are planned, but only " +
                        format_bytes(free) + " of memory are free" +
                        what_fits(setup, backend, free / static_cast<size_t>(setup.local_size)));
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

void Run::begin() {
  if (rank == 0) note_free_memory();
  trainer.allocate();
  set_starting_values();
  if (setup.options.profile) trainer.profile(&profile);
  if (!setup.options.trace.empty() || setup.pipeline.shape.stages > 1) {
    trace = std::make_unique<Trace>(backend, setup.options.trace.empty() ? 0 : TraceFile::updates);
    trainer.trace(trace.get());
  }
  for (std::string& line : schedule_notes(setup.options, updates_per_epoch, progress))
    setup.notes.push_back(std::move(line));
  if (progress.step == end && progress.loss_count == 0)
    setup.notes.push_back("nothing left to do: " + counted(end, "step") + " done");
  // Nothing is written before all processes have looked at the run folder as it was.
  if (communicator) communicator->barrier();
  if (rank != 0) return;
  console = std::make_unique<Console>(end, setup.options.quiet);
  if (std::string warning = folder.begin(); !warning.empty())
    setup.notes.push_back(std::move(warning));
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
