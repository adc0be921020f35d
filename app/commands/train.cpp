// train MODEL: trains a model in one or more processes.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "app/hooks/standard_hooks.h"
#include "app/hooks/trace_file.h"
#include "app/recipe_check/recipe_check.h"
#include "base/error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "comm/connect/host_comm.h"
#include "comm/processes/affinity.h"
#include "comm/processes/restart.h"
#include "comm/processes/worker_status.h"
#include "engine/options/config.h"
#include "engine/run/image_check.h"
#include "engine/run/run_folder_lock.h"
#include "engine/run/training_loop.h"
#include "engine/setup/kernels.h"

namespace bv {

namespace {

// Reports to the launcher which step begins.
class StepStatus : public Hook {
 public:
  explicit StepStatus(WorkerStatus& status) : status_(status) {}
  int priority() const override { return priority::measuring; }
  void before_train_iter(Run& run) override { status_.begins(run.progress.step + 1); }

 private:
  WorkerStatus& status_;
};

// The status that the launcher needs for a restart or for a node that joins late; else nothing.
std::optional<WorkerStatus> status_for_restarts(const Options& o, const World& world) {
  if (o.min_nproc && !world.launched)
    throw UserError(
        "--min-nproc is for processes that ./launcher starts, and another launcher has "
        "started this one (" +
        world.variables + " in the environment); leave it out");
  const bool nodes_vary = world.launched && o.nnodes.least < o.nnodes.most;
  if ((o.max_restarts == 0 && !nodes_vary) || o.plan) return std::nullopt;
  if (!world.launched)
    throw UserError("--max-restarts " + std::to_string(o.max_restarts) +
                    " is for processes that ./launcher starts, and another launcher has started "
                    "this one (" +
                    world.variables +
                    " in the environment): use that launcher's own option, and add --resume DIR "
                    "here");
  return std::optional<WorkerStatus>(std::in_place, world);
}

// With --shards, each shard has its share of the cores, whichever process computes it: the order of
// oneDNN's sums depends on the number of threads.
int threads_for_shards(const Options& o, const World& world, int cores) {
  const int here = o.shards * o.pipeline / world.size;
  return std::max(1, cores / std::max(1, here));
}

// request: read here unless the caller has read it.
int work(const CommandLine& line, std::optional<Request>& request, Process& p) {
  const auto started = Profile::Clock::now();
  auto& [world, backend, communicator] = p;
  const int cores = pin_to_share(world);
  RunFolderLock claim(line, world);
  if (!request) request = read_request(line);
  Options& given = request->options;
  if (given.resume.empty()) claim.claim_new(given, world);
  // Until Run::begin() succeeds on all ranks, a stop signal ends the process: nothing is lost.
  const EndsOnStopSignals starting([&claim] { claim.give_back(); });
  given.out = claim.folder();
  std::optional<WorkerStatus> status = status_for_restarts(given, world);
  if (status && world.local_rank == 0) status->claimed(given.out);
  if (given.plan && world.rank > 0) return 0;  // rank 0 prints the plan
  DeviceChoice device = choose_device(given, world);
  const KernelSet kernels = resolve_kernels(given, device);
  // With cores to spare, one of them reduces gradients while the others continue the backward pass.
  // Between machines the reduction mostly waits for the network and needs no core of its own.
  const bool spare = cores >= 4;
  const bool overlap =
      device.kind == DeviceKind::cpu && world.size > 1 && (spare || world.several_machines());
  const int threads = given.shards       ? threads_for_shards(given, world, cores)
                      : overlap && spare ? cores - 1
                                         : cores;
  try {
    backend = open_backend(device.kind, {.index = device.index,
                                         .threads = threads,
                                         .overlap = overlap,
                                         .graphs = !given.no_graph,
                                         .kernels = kernels,
                                         .collectives = world.size > 1});
  } catch (const UserError& e) {
    if (given.min_nproc) throw RunError(e.what());  // the launcher may do without this device
    throw;
  }
  Setup setup = prepare(*request, world.size, device, *backend);
  check_trace_file(setup.options.trace);
  setup.started = started;
  setup.kernels = kernels;
  setup.local_size = world.local_size;
  if (!claim.warning().empty()) setup.notes.push_back(claim.warning());
  if (world.size > 1 && !setup.options.plan) {
    const StartFacts facts{.resumed_step = setup.checkpoint ? setup.checkpoint->step : 0,
                           .data = setup.data.fingerprint};
    Connection peers = connect(world, setup.options, facts, device, *backend);
    communicator = std::move(peers.communicator);
    setup.all_reduce = setup.trainer.sync.by_ordered_sum() ? AllReduce::flat : peers.all_reduce;
    setup.nodes = peers.nodes;
  }
  if (setup.options.all_reduce == AllReduce::two_level && setup.nodes.empty())
    setup.notes.push_back("--all-reduce 2d is flat here: all processes are on one machine");
  if (communicator && !communicator->note().empty()) setup.notes.push_back(communicator->note());
  if (!setup.options.plan) {
    check_images(setup, communicator.get(), *backend, cores);
    if (world.rank == 0) say_findings(setup, cores);
  }
  return train(std::move(setup), *backend, communicator.get(), cores, [&](const Run& run) {
    HookList hooks = standard_hooks(run);
    if (status) hooks.push_back(std::make_unique<StepStatus>(*status));
    return hooks;
  });
}

// Adds --resume auto if our launcher has restarted the run, which then continues in the folder that
// it had claimed, or begins there if it has no checkpoint yet.
CommandLine resumed_line(const CommandLine& line) {
  const std::optional<Restart> restart = restart_from_environment();
  CommandLine resumed = line;
  if (!restart || line.values.contains("resume")) return resumed;
  if (!line.values.contains("out")) {
    if (restart->folder.empty()) return resumed;
    resumed.values["out"] = {restart->folder};
  }
  resumed.values["resume"] = {"auto"};
  return resumed;
}

// Without this check, a restarted job would silently train from the beginning.
void refuse_to_begin_again(const CommandLine& line) {
  if (line.values.contains("resume") || line.values.contains("plan")) return;
  for (const char* const name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    if (const char* const count = std::getenv(name); count && std::atoi(count) > 0)
      throw UserError(std::string(name) + " is " + printable(count) +
                      ": the job was started again, and this command would train from the "
                      "beginning; add --resume DIR, which starts the run in a new folder and "
                      "resumes it there, or --resume auto with --out DIR");
}

int train_in_processes(const CommandLine& given, const std::vector<std::string>& argv) {
  refuse_to_begin_again(given);
  const CommandLine line = resumed_line(given);
  std::optional<Request> request;
  const auto options = [&] { return request.emplace(read_request(line)).options; };
  return in_processes(line, argv, options, [&](Process& p) {
    try {
      return work(line, request, p);
    } catch (const UserError& e) {
      throw with_place(line, e);
    }
  });
}

}  // namespace

constinit const Command train_command = {
    .name = "train",
    .usage = "[-n N] MODEL [options]",
    .summary = "train a model, or resume a run; the word train may be left out",
    .takes = of_training,
    .run = train_in_processes,
    .in_processes = true};

}  // namespace bv
