#include "app/commands/processes.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/machine_error.h"
#include "comm/connect/device_communicator.h"
#include "comm/connect/host_comm.h"
#include "comm/connect/launchers.h"
#include "comm/connect/machines.h"
#include "comm/processes/launch.h"
#include "data/dataset.h"
#include "engine/options/augmentation.h"
#include "engine/options/config.h"
#include "engine/setup/same_options.h"

namespace bv {

namespace {

bool nodes_vary(const Options& o) { return o.nnodes.least < o.nnodes.most; }

NodePlace node_place(const Options& o) {
  const int nodes = o.nnodes.most;
  const std::string given = "--nnodes " + o.nnodes.text;
  if (o.node_rank >= nodes)
    throw UserError("--node-rank " + std::to_string(o.node_rank) + ": the last of " + given +
                    " is " + std::to_string(nodes - 1));
  if (nodes > 1 && o.master_addr.empty())
    throw UserError(given +
                    " needs --master-addr HOST, the machine of --node-rank 0, the same on all");
  if (nodes > 1 && o.max_restarts > 0 && o.out.empty() && o.resume.empty())
    throw UserError("--max-restarts with " + given +
                    " needs --out DIR, the same on all, on a disk that all nodes share");
  return {.node = o.node_rank,
          .nodes = nodes,
          .master_addr = o.master_addr,
          .master_port = o.master_port,
          .least = o.nnodes.least};
}

// Refuses --local-batch where the number of processes may change, since the batch must not.
void refuse_local_batch(const Options& o, const std::string& with) {
  if (o.max_restarts > 0 && o.local_batch)
    throw UserError("--local-batch can't be used with " + with +
                    " and --max-restarts: the images of a step stay the same when the number of "
                    "processes changes; give --batch");
}

void check_min_nproc(const Options& o, int here) {
  const std::string given = "--min-nproc " + std::to_string(*o.min_nproc);
  if (*o.min_nproc > here)
    throw UserError(given + ": more than the " + std::to_string(here) +
                    (here == 1 ? " process" : " processes") + " of -n");
  if (o.nnodes.most > 1)
    throw UserError(given + " is for one machine; --nnodes MIN:MAX says how many nodes are enough");
  refuse_local_batch(o, given);
}

bool has_begun(const std::string& folder) {
  std::error_code ignored;
  return !folder.empty() && std::filesystem::exists(folder + "/config.json", ignored);
}

// Whether `nproc` processes can train the run with its batch. A recipe's batch is adjusted unless
// the run has begun with it.
bool fits(const Options& given, int nproc, const std::string& folder) {
  const Options o = has_begun(folder) ? options_of_run(folder) : given;
  if (nproc % o.pipeline) return false;
  const int share = nproc / o.pipeline * (mixing_of(o).any() ? 2 : 1);
  return !o.batch || !o.is_explicit("batch") || *o.batch % share == 0;
}

// Returns `here`; if there are fewer GPUs, the largest number that fits(), at least --min-nproc
// and at most the number of GPUs.
int processes_to_start(const Options& o, int here) {
  const bool on_gpus = o.device.value_or(DeviceKind::cuda) == DeviceKind::cuda;
  const int gpus = on_gpus && !o.oversubscribe ? gpu_count(nullptr) : 0;
  if (gpus == 0 || gpus >= here) return here;
  int fewer = gpus;
  while (fewer >= *o.min_nproc && !fits(o, fewer, o.resume)) --fewer;
  const std::string lack =
      std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") + " for -n " + std::to_string(here);
  if (fewer < *o.min_nproc)
    throw UserError("--min-nproc " + std::to_string(*o.min_nproc) + ": " + lack +
                    (fewer == gpus || gpus < *o.min_nproc ? ""
                                                          : ", and no number of processes "
                                                            "between these divides the batch"));
  print_error_line(lack + ": " + std::to_string(fewer) + (fewer == 1 ? " process" : " processes") +
                   " (--min-nproc)");
  return fewer;
}

}  // namespace

// A resumed run's number of processes counts those of all machines.
int processes_here(const Options& o) {
  // A named recipe's number suits the machine it was made for; a machine with fewer GPUs overrides
  // it. A resumed run may have had a different number of nodes.
  const bool by_recipe = o.source("nproc") == Source::named_recipe;
  const bool by_run = o.source("nproc") == Source::run;
  const int gpus =
      by_recipe && o.device.value_or(DeviceKind::cuda) == DeviceKind::cuda ? gpu_count(nullptr) : 0;
  if (!o.nproc || (gpus > 0 && gpus < *o.nproc) || (by_run && nodes_vary(o)))
    return std::max(default_processes(o.device) / o.pipeline, 1) * o.pipeline;
  const int nodes = o.nnodes.most;
  if (nodes == 1 || !by_run) return *o.nproc;
  if (*o.nproc % nodes == 0) return *o.nproc / nodes;
  throw UserError("the run in " + o.resume + " had " + std::to_string(*o.nproc) +
                  " processes, which --nnodes " + std::to_string(nodes) +
                  " doesn't divide; give -n, the processes per node");
}

int in_processes(const CommandLine& line, const std::vector<std::string>& argv,
                 const std::function<Options()>& options,
                 const std::function<int(Process&)>& work) {
  const auto work_as = [&work](World world) {
    Process p{.world = std::move(world)};
    try {
      return work(p);
    } catch (const std::exception& e) {
      if (!p.communicator && p.world.shared_fd < 0) throw;  // there is no peer to tell
      if (p.communicator)
        p.communicator->end_run(p.world.name_of(p.world.rank) + ": " + error_line(e));
      fail_worker(p.world, error_line(e), exit_code(e));
    }
  };
  const auto launch = [&] {
    const Options o = options();
    const int here = processes_here(o);
    const NodePlace place = node_place(o);
    if (nodes_vary(o)) refuse_local_batch(o, "--nnodes " + o.nnodes.text);
    if (o.min_nproc) check_min_nproc(o, here);
    if (o.plan) return work_as({.size = here * place.nodes, .local_size = here, .launched = true});
    Launchers others;
    const bool meets = place.nodes > 1 && (o.max_restarts > 0 || nodes_vary(o));
    return run_launcher(
        {.nproc = o.min_nproc ? processes_to_start(o, here) : here,
         .argv = argv,
         .place = place,
         .max_restarts = o.max_restarts,
         .timeout = o.timeout,
         .others = meets ? &others : nullptr,
         .begun = has_begun(o.resume),
         .min_nproc = o.min_nproc.value_or(0),
         .fits = [&o](int nproc, const std::string& folder) { return fits(o, nproc, folder); }});
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
    // The launchers are connected, so a missing rank is not the user's mistake: it has died.
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
  const auto* machine = dynamic_cast<const MachineError*>(&e);
  const bool forbidden = machine && (machine->code == EACCES || machine->code == EPERM);
  const bool mistake =
      forbidden || dynamic_cast<const UserError*>(&e) || dynamic_cast<const DataError*>(&e);
  return mistake ? 2 : 1;
}

}  // namespace bv
