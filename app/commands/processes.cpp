#include "app/commands/processes.h"

#include <algorithm>

#include "base/error.h"
#include "comm/connect/device_communicator.h"
#include "comm/connect/host_comm.h"
#include "comm/connect/launchers.h"
#include "comm/connect/machines.h"
#include "comm/processes/launch.h"
#include "data/dataset.h"
#include "engine/setup/same_options.h"

namespace bv {

namespace {

NodePlace node_place(const Options& o) {
  if (o.node_rank >= o.nnodes)
    throw UserError("--node-rank " + std::to_string(o.node_rank) + ": of --nnodes " +
                    std::to_string(o.nnodes) + " the last is " + std::to_string(o.nnodes - 1));
  if (o.nnodes > 1 && o.master_addr.empty())
    throw UserError("--nnodes " + std::to_string(o.nnodes) +
                    " needs --master-addr HOST, the machine of --node-rank 0, the same on all");
  if (o.nnodes > 1 && o.max_restarts > 0 && o.out.empty() && o.resume.empty())
    throw UserError("--max-restarts with --nnodes " + std::to_string(o.nnodes) +
                    " needs --out DIR, the same on all, on a disk that all nodes share");
  return {.node = o.node_rank,
          .nodes = o.nnodes,
          .master_addr = o.master_addr,
          .master_port = o.master_port};
}

}  // namespace

// A resumed run's number of processes counts those of all machines.
int processes_here(const Options& o) {
  // A named recipe's number suits the machine it was made for; a machine with fewer GPUs overrides
  // it.
  const bool by_recipe = o.source("nproc") == Source::named_recipe;
  const int gpus =
      by_recipe && o.device.value_or(DeviceKind::cuda) == DeviceKind::cuda ? gpu_count(nullptr) : 0;
  if (!o.nproc || (gpus > 0 && gpus < *o.nproc))
    return std::max(default_processes(o.device) / o.pipeline, 1) * o.pipeline;
  if (o.nnodes == 1 || o.source("nproc") != Source::run) return *o.nproc;
  if (*o.nproc % o.nnodes == 0) return *o.nproc / o.nnodes;
  throw UserError("the run in " + o.resume + " had " + std::to_string(*o.nproc) +
                  " processes, which --nnodes " + std::to_string(o.nnodes) +
                  " doesn't divide; give -n, of each node");
}

int in_processes(const CommandLine& line, const std::vector<std::string>& argv,
                 const std::function<Options()>& options,
                 const std::function<int(Process&)>& work) {
  const auto work_as = [&work](World world) {
    Process p{.world = std::move(world)};
    try {
      return work(p);
    } catch (const std::exception& e) {
      if (p.communicator)
        p.communicator->end_run(p.world.name_of(p.world.rank) + ": " + error_line(e));
      fail_worker(p.world, error_line(e), exit_code(e));
    }
  };
  const auto launch = [&] {
    const Options o = options();
    const int here = processes_here(o);
    const NodePlace place = node_place(o);
    if (o.plan) return work_as({.size = here * place.nodes, .local_size = here, .launched = true});
    return run_launcher({.nproc = here,
                         .argv = argv,
                         .place = place,
                         .max_restarts = o.max_restarts,
                         .timeout = o.timeout,
                         .meet = place.nodes > 1 && o.max_restarts > 0 ? meet_launchers : nullptr});
  };
  // With -n or --nnodes this is the launcher, even if RANK is still set in the environment.
  const bool launches = line.values.contains("nproc") || line.values.contains("nnodes");
  if (launches && !is_launched_worker()) {
    refuse_other_launchers();
    return launch();
  }
  const std::optional<World> world = world_from_environment();
  return world ? work_as(*world) : launch();
}

Connection connect(World& world, const Options& o, const StartFacts& facts,
                   const DeviceChoice& device, Backend& backend) {
  const auto bucket_bytes = static_cast<size_t>(*o.bucket_bytes);
  std::unique_ptr<Communicator> hosts;
  try {
    hosts = connect_hosts(world, bucket_bytes, o.timeout);
  } catch (const UserError& e) {
    // The launchers have met, so it is no mistake that a rank hasn't come: it has died.
    if (world.launched && world.nodes > 1 && o.max_restarts > 0) throw RunError(e.what());
    throw;
  }
  require_same_options(*hosts, o, facts, world);
  const bool on_hosts = device.kind == DeviceKind::cpu || device.shared;
  const AllReduce how = choose_all_reduce(o.all_reduce, world, on_hosts);
  const bool two_level = how == AllReduce::two_level;
  const std::string nodes = list_of_nodes(world.seats);
  auto* const run = dynamic_cast<RunWatch*>(hosts.get());  // only with several machines
  if (run && on_hosts)
    hosts =
        connect_data(world, std::move(hosts), *run,
                     {.bucket_bytes = bucket_bytes, .timeout = o.timeout, .two_level = two_level});
  auto whole = make_communicator(device.kind, backend,
                                 {.place = {.rank = world.rank,
                                            .size = world.size,
                                            .timeout = o.timeout,
                                            .supervised = world.launched,
                                            .run = run},
                                  .fd = world.shared_fd,
                                  .host_comm = std::move(hosts)},
                                 device.shared);
  if (two_level && !on_hosts) whole = make_two_level(world, std::move(whole));
  return {std::move(whole), how, nodes};
}

// Turns errors of a device or its environment into UserErrors.
std::unique_ptr<Backend> open_backend(DeviceKind kind, const BackendOptions& options) try {
  return make_backend(kind, options);
} catch (const std::exception& e) {
  throw UserError(e.what());
}

int exit_code(const std::exception& e) {
  return dynamic_cast<const UserError*>(&e) || dynamic_cast<const DataError*>(&e) ? 2 : 1;
}

}  // namespace bv
