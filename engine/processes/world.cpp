// Who this process is among its peers, as the program that started it says in the environment.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/processes/launch.h"
#include "engine/processes/rendezvous.h"
#include "kernels/comm/shared_memory_communicator.h"
#include "kernels/comm/shared_region.h"
#include "kernels/comm/tcp_communicator.h"

namespace bv {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (!value || !*value) return std::nullopt;
  return value;
}

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = variable(name)) return *value;
  return "";
}

int number(const std::string& name, int min, int max) {
  const std::string text = variable(name).value_or("");
  const auto value = parse_integer(text);
  if (!value || *value < min || *value > max)
    throw UserError(name + "=" + printable(text) + " in the environment should be a number from " +
                    std::to_string(min) + " to " + std::to_string(max));
  return static_cast<int>(*value);
}

// One family of variables. Those of the local ranks may be missing (null: there is none): then
// there is one machine.
struct Family {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Family torchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Family open_mpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr int max_processes = 1 << 16;

World read(const Family& names) {
  for (const char* name : {names.rank, names.size})
    if (!variable(name))
      throw UserError(std::string(name == names.rank ? names.size : names.rank) +
                      " is set in the environment, " + name +
                      " is not: set or unset both, or give -n to start the processes here");
  World world;
  world.size = number(names.size, 1, max_processes);
  world.rank = number(names.rank, 0, world.size - 1);
  world.local_size = names.local_size && variable(names.local_size)
                         ? number(names.local_size, 1, world.size)
                         : world.size;
  world.local_rank = variable(names.local_rank) ? number(names.local_rank, 0, world.local_size - 1)
                     : world.local_size == world.size ? world.rank
                                                      : world.rank % world.local_size;
  world.variables = std::string(names.rank) + ", " + names.size;
  world.host = variable("MASTER_ADDR").value_or("");
  if (variable("MASTER_PORT")) world.port = number("MASTER_PORT", 1, 65534);
  return world;
}

World from_torchrun() {
  World world = read(torchrun);
  if (variable(shared_fd_variable)) {
    world.launched = true;
    world.shared_fd = number(shared_fd_variable, 0, 1 << 30);
    return world;
  }
  world.variables += ", MASTER_ADDR, MASTER_PORT";
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (world.size > 1 && !variable(name))
      throw UserError("RANK and WORLD_SIZE are set in the environment, " + std::string(name) +
                      " is not: set it the same for all ranks, or give -n to start the processes "
                      "here");
  world.master = first_of({"MASTER_ADDR"}) + ":" + first_of({"MASTER_PORT"});
  // A group of processes that torchrun starts again must not meet what is left of the last one.
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    world.master += "/" + first_of({name});
  return world;
}

World from_open_mpi() {
  World world = read(open_mpi);
  world.master = first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  return world;
}

// "2(x3),1": two tasks on each of three machines, one on the fourth.
int tasks_per_node(const std::string& text) {
  return static_cast<int>(parse_integer(text.substr(0, text.find_first_of("(,"))).value_or(0));
}

World from_slurm() {
  // A step's own number of tasks may differ from the job's.
  const bool step = variable("SLURM_STEP_NUM_TASKS").has_value();
  World world = read(
      {"SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", nullptr});
  const int here = tasks_per_node(first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  if (here > 0 && here < world.size) world.local_size = here;
  world.master = "slurm " + first_of({"SLURM_JOB_ID"}) + "." + first_of({"SLURM_STEP_ID"});
  return world;
}

// The line is claimed in the shared control block, if it can still be reached.
bool is_first_error(const World& world, int exit_code) {
  if (world.shared_fd < 0) return true;
  try {
    const int fd = dup(world.shared_fd);
    return fd < 0 || SharedRegion::open(fd).claim_error(exit_code);
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

std::optional<World> world_from_environment() {
  if (variable(torchrun.rank) || variable(torchrun.size)) return from_torchrun();
  if (variable(open_mpi.rank) || variable(open_mpi.size)) return from_open_mpi();
  // The number of tasks alone is also set in a shell that will start the processes.
  if (variable("SLURM_PROCID")) return from_slurm();
  return std::nullopt;
}

namespace {

std::unique_ptr<Communicator> connect_machines(World& world, double timeout) {
  std::vector<Socket> sockets = meet_over_network(world, timeout);
  const SharedRegion region = SharedRegion::create(world.size);
  world.shared_fd = fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
  if (world.shared_fd < 0) throw RunError(std::string("dup: ") + std::strerror(errno));
  return make_tcp_communicator(
      {.rank = world.rank, .size = world.size, .timeout = timeout, .supervised = false},
      std::move(sockets), world.shared_fd);
}

}  // namespace

std::unique_ptr<Communicator> connect_hosts(World& world, size_t bucket_bytes, double timeout) {
  try {
    if (world.several_machines()) return connect_machines(world, timeout);
    if (world.size > 1 && world.shared_fd < 0) world.shared_fd = meet_peers(world, timeout);
    return make_shared_memory_communicator({.rank = world.rank,
                                            .size = world.size,
                                            .fd = world.shared_fd,
                                            .bucket_bytes = bucket_bytes,
                                            .timeout = timeout,
                                            .supervised = world.launched});
  } catch (const std::system_error& error) {
    throw RunError(error.what());
  } catch (const UserError&) {
    throw;
  } catch (const std::logic_error& error) {
    throw UserError(error.what());
  } catch (const std::runtime_error& error) {
    throw UserError(error.what());
  }
}

void fail_worker(const World& world, const std::string& line, int exit_code) {
  std::fflush(stdout);
  if (is_first_error(world, exit_code)) {
    const std::string whole = line + "\n";  // in one write, not to mix with others'
    if (write(STDERR_FILENO, whole.data(), whole.size()) < 0) _exit(exit_code);
  }
  _exit(exit_code);
}

}  // namespace bv
