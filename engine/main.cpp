// The launcher, which starts this program once per process, and the worker that it starts.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/base/error.h"
#include "engine/device.h"
#include "engine/image_check.h"
#include "engine/options/command_line.h"
#include "engine/options/config.h"
#include "engine/options/model_config.h"
#include "engine/processes/affinity.h"
#include "engine/processes/host_comm.h"
#include "engine/processes/launch.h"
#include "engine/processes/machines.h"
#include "engine/processes/signals.h"
#include "engine/setup.h"
#include "engine/training/run_claim.h"
#include "engine/training/training_loop.h"
#include "kernels/comm/rank_barrier.h"

namespace bv {
namespace {

std::unique_ptr<Communicator> connect(World& world, Setup& setup, const DeviceChoice& device,
                                      Backend& backend) {
  const Options& o = setup.options;
  const auto bucket_bytes = static_cast<size_t>(*o.bucket_bytes);
  auto hosts = connect_hosts(world, bucket_bytes, o.timeout);
  require_same_options(*hosts, o, setup.checkpoint ? setup.checkpoint->step : 0, world);
  const bool on_hosts = device.kind == DeviceKind::cpu || device.shared;
  const bool two_level = choose_all_reduce(o.all_reduce, world, on_hosts) == "2d";
  setup.all_reduce = two_level ? "2d" : "flat";
  setup.nodes = list_of_nodes(world.seats);
  auto* const run = dynamic_cast<RunWatch*>(hosts.get());  // of several machines
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
  return two_level && !on_hosts ? make_two_level(world, std::move(whole)) : std::move(whole);
}

// What is wrong with a device or its environment is the user's to mend.
std::unique_ptr<Backend> open_backend(DeviceKind kind, const BackendOptions& options) try {
  return make_backend(kind, options);
} catch (const std::exception& e) {
  throw UserError(e.what());
}

int exit_code(const std::exception& e) {
  return dynamic_cast<const UserError*>(&e) || dynamic_cast<const DataError*>(&e) ? 2 : 1;
}

int work(const CommandLine& line, World world) {
  const auto started = Profile::Clock::now();
  // Both outlive an error: peers must not see this rank leave before its line is printed.
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  try {
    catch_stop_signals();
    const int cores = pin_to_share(world);
    const RunClaim claim(line, world);
    Options given = initial_options(line);
    given.out = claim.folder();
    const DeviceChoice device = choose_device(given, world);
    if (given.conv == "cudnn" && device.kind == DeviceKind::cpu)
      throw UserError("--conv cudnn: cuDNN computes on GPUs, this run is on the cpu");
    // With cores to spare, one of them reduces gradients while the others continue backward.
    // Between machines it mostly waits for the network, and needs no core of its own.
    const bool spare = cores >= 4;
    const bool overlap =
        device.kind == DeviceKind::cpu && world.size > 1 && (spare || world.several_machines());
    backend = open_backend(device.kind, {.index = device.index,
                                         .threads = overlap && spare ? cores - 1 : cores,
                                         .overlap = overlap,
                                         .graphs = !given.no_graph,
                                         .cudnn = given.conv == "cudnn"});
    Setup setup = prepare(line, given, world.size, device, *backend);
    setup.started = started;
    setup.local_size = world.local_size;
    if (!claim.warning().empty()) setup.notes.push_back(claim.warning());
    if (world.size > 1) communicator = connect(world, setup, device, *backend);
    if (communicator && !communicator->note().empty()) setup.notes.push_back(communicator->note());
    if (!setup.options.plan) check_images(setup, communicator.get(), *backend);
    return train(std::move(setup), *backend, communicator.get(), cores);
  } catch (const std::exception& e) {
    if (communicator) communicator->end_run(world.name_of(world.rank) + ": " + error_line(e));
    fail_worker(world, error_line(e), exit_code(e));
  }
}

// -n of this machine. A resumed run's number of processes is that of all machines.
int processes_here(const Options& o) {
  if (!o.nproc) return default_processes(o.device);
  if (o.nnodes == 1 || o.source("nproc") != Source::run) return *o.nproc;
  if (*o.nproc % o.nnodes == 0) return *o.nproc / o.nnodes;
  throw UserError("the run in " + o.resume + " had " + std::to_string(*o.nproc) +
                  " processes, which --nnodes " + std::to_string(o.nnodes) +
                  " doesn't divide; give -n, of each node");
}

NodePlace node_place(const Options& o) {
  if (o.node_rank >= o.nnodes)
    throw UserError("--node-rank " + std::to_string(o.node_rank) + ": of --nnodes " +
                    std::to_string(o.nnodes) + " the last is " + std::to_string(o.nnodes - 1));
  if (o.nnodes > 1 && o.master_addr.empty())
    throw UserError("--nnodes " + std::to_string(o.nnodes) +
                    " needs --master-addr HOST, the machine of --node-rank 0, the same on all");
  return {.node = o.node_rank,
          .nodes = o.nnodes,
          .master_addr = o.master_addr,
          .master_port = o.master_port};
}

int launch(const CommandLine& line, const std::vector<std::string>& argv) {
  // The command line's mistakes are found before any process starts.
  const Options options = initial_options(line);
  load_model_config(options.model);
  return run_launcher(processes_here(options), argv, node_place(options));
}

int run(const std::vector<std::string>& argv) {
  const CommandLine line = parse_command_line(std::span(argv).subspan(1));
  if (line.print) {
    std::fputs(line.print->text.c_str(), line.print->exit_code ? stderr : stdout);
    return line.print->exit_code;
  }
  // With -n or --nnodes this is the launcher, whatever a RANK is left in the environment.
  const bool launches = line.values.contains("nproc") || line.values.contains("nnodes");
  if (launches && !is_launched_worker()) {
    refuse_other_launchers();
    return launch(line, argv);
  }
  const std::optional<World> world = world_from_environment();
  return world ? work(line, *world) : launch(line, argv);
}

}  // namespace
}  // namespace bv

int main(int argc, char** argv) {
  // Where the standard streams are closed, the files that a run opens must not take their numbers.
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) close(fd);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);  // errors instead
  try {
    return bv::run({argv, argv + argc});
  } catch (const std::exception& e) {
    bv::print_error_line(bv::error_line(e));
    return bv::exit_code(e);
  }
}
