#include "comm/processes/world.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/text.h"

namespace bv {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

std::string text_of(const char* name) { return variable(name).value_or(""); }

int number(const std::string& name, int min, int max) {
  const std::string text = text_of(name.c_str());
  const auto value = parse_integer(text);
  if (!value || *value < min || *value > max)
    throw UserError(name + "=" + printable(text) + " in the environment should be a number from " +
                    std::to_string(min) + " to " + std::to_string(max));
  return static_cast<int>(*value);
}

// A launcher's variables. Without those of local ranks (null or not set), there is one machine.
struct Family {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Family torchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Family open_mpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Family pmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
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
  world.host = text_of("MASTER_ADDR");
  world.secret = text_of("BAREVISION_SECRET");
  if (variable("MASTER_PORT")) world.port = number("MASTER_PORT", 1, 65534);
  world.machine = name_of_machine();
  return world;
}

// Without the variables of the local ranks, all would wait for each other on one machine.
void refuse_unknown_places(const World& world) {
  const bool here =
      world.host == "localhost" || world.host.starts_with("127.") || world.host == "::1";
  if (world.size == 1 || here || variable(torchrun.local_size) || variable(torchrun.local_rank))
    return;
  throw UserError(
      "RANK and WORLD_SIZE are set in the environment, LOCAL_RANK and LOCAL_WORLD_SIZE are not: "
      "set "
      "them to 0 and 1 for one process per machine (as in a PyTorchJob), or to this process's "
      "number "
      "on its machine and how many there are");
}

World from_torchrun() {
  World world = read(torchrun);
  world.node = variable("GROUP_RANK") ? number("GROUP_RANK", 0, world.size - 1)
                                      : (world.rank - world.local_rank) / world.local_size;
  if (variable("GROUP_WORLD_SIZE")) world.nodes = number("GROUP_WORLD_SIZE", 1, world.size);
  if (is_launched_worker()) {
    world.launched = true;
    world.shared_fd = number(shared_fd_variable, 0, 1 << 30);
    if (variable(device_variable)) world.device = number(device_variable, 0, max_processes);
    world.nodes = world.size / world.local_size;
    world.master = text_of("MASTER_ADDR") + ":" + text_of("MASTER_PORT");
    world.variables = "--nnodes, --node-rank, -n";
    return world;
  }
  world.variables += ", MASTER_ADDR, MASTER_PORT";
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (world.size > 1 && !variable(name))
      throw UserError("RANK and WORLD_SIZE are set in the environment, " + std::string(name) +
                      " is not: set it the same for all ranks, or give -n to start the processes "
                      "here");
  refuse_unknown_places(world);
  world.master = text_of("MASTER_ADDR") + ":" + text_of("MASTER_PORT");
  // Processes restarted by torchrun must not connect to leftovers of the previous attempt.
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    if (variable(name)) world.master += std::string("/") + text_of(name);
  return world;
}

World from_open_mpi() {
  World world = read(open_mpi);
  world.master = variable("PMIX_NAMESPACE").value_or(text_of("OMPI_MCA_ess_base_jobid"));
  return world;
}

// The Hydra process that started this one, perhaps through shells; if none is found, its parent.
std::string hydra_proxy() {
  std::string parent = std::to_string(getppid());
  for (std::string pid = parent; pid != "0" && pid != "1" && !pid.empty();) {
    // "31279 (hydra_pmi_proxy) S 31277 ...": the name may have any characters but the last ")".
    std::ifstream file("/proc/" + pid + "/stat");
    const std::string stat{std::istreambuf_iterator(file), {}};
    const size_t name = stat.find('('), end = stat.rfind(')');
    if (name == stat.npos || end == stat.npos || end + 4 > stat.size()) break;
    if (stat.substr(name + 1).starts_with("hydra")) return pid;
    pid = stat.substr(end + 4, stat.find(' ', end + 4) - (end + 4));
  }
  return parent;
}

// MPICH and Intel MPI.
World from_hydra() {
  World world = read(pmi);
  for (const char* name : {pmi.local_rank, pmi.local_size})
    if (!variable(name) && world.size > 1)
      throw UserError(
          "PMI_RANK and PMI_SIZE are set in the environment, " + std::string(name) +
          " is not: start the ranks with MPICH's or Intel MPI's mpiexec, with torchrun's "
          "variables (RANK, WORLD_SIZE, LOCAL_RANK, ...), or give -n to start them here");
  world.master = "hydra " + hydra_proxy();
  return world;
}

// "2(x3),1": two tasks on each of three machines, one on the fourth.
int tasks_per_node(const std::string& text) {
  return static_cast<int>(parse_integer(text.substr(0, text.find_first_of("(,"))).value_or(0));
}

// A batch script has SLURM_PROCID=0, too, but nobody starts its other tasks.
void refuse_batch_script() {
  const int tasks = variable("SLURM_NTASKS") ? number("SLURM_NTASKS", 1, max_processes) : 1;
  for (const char* step : {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"})
    if (variable(step) || tasks == 1) return;
  throw UserError("SLURM_NTASKS is " + std::to_string(tasks) +
                  ", but srun has not started this process (there is no SLURM_STEP_ID): in a job "
                  "script, write srun ./launcher ..., or give -n to start the processes here");
}

World from_slurm() {
  refuse_batch_script();
  // A step's own number of tasks may differ from the job's.
  const bool step = variable("SLURM_STEP_NUM_TASKS").has_value();
  World world = read(
      {"SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", nullptr});
  const int local = tasks_per_node(
      variable("SLURM_STEP_TASKS_PER_NODE").value_or(text_of("SLURM_TASKS_PER_NODE")));
  if (local > 0 && local < world.size) world.local_size = local;
  if (variable("SLURM_NODEID")) world.node = number("SLURM_NODEID", 0, world.size - 1);
  world.master = "slurm " + text_of("SLURM_JOB_ID") + "." + text_of("SLURM_STEP_ID");
  return world;
}

}  // namespace

std::string name_of_machine() {
  char name[65] = {};
  return gethostname(name, sizeof name - 1) == 0 ? printable(name) : "";
}

bool is_launched_worker() { return variable(shared_fd_variable).has_value(); }

namespace {

// The program that has started several ranks, of which this is one, and the variable that says so.
using OtherLauncher = std::array<const char*, 2>;
std::optional<OtherLauncher> other_launcher() {
  // A terminal in a step of srun --pty is a shell: nobody else starts ranks in it.
  if (variable("SLURM_PTY_PORT") && isatty(STDIN_FILENO)) return {};
  for (const auto& [launcher, sign, size] :
       {std::array{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        std::array{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
        std::array{"mpiexec", "PMI_RANK", "PMI_SIZE"},
        std::array{"torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"}})
    if (variable(sign) && parse_integer(text_of(size)).value_or(1) > 1)
      return OtherLauncher{launcher, size};
  return {};
}

}  // namespace

std::string command_to_start_here(int ranks) {
  const std::optional<OtherLauncher> other = other_launcher();
  return (other ? std::string("env -u ") + other->back() + " ./launcher -n " : "-n ") +
         std::to_string(ranks);
}

void refuse_other_launchers() {
  if (const auto other = other_launcher()) {
    const auto& [launcher, size] = *other;
    throw UserError(std::string(launcher) + " has started " + printable(text_of(size)) +
                    " ranks already (" + size +
                    " in the environment): leave out -n; in a shell of its own, " +
                    (variable("SLURM_PROCID") ? "srun --overlap ./launcher starts ranks, " : "") +
                    "env -u " + size + " ./launcher -n N does so here");
  }
}

std::optional<World> world_from_environment() {
  if (variable(torchrun.rank) || variable(torchrun.size)) return from_torchrun();
  if (variable(open_mpi.rank) || variable(open_mpi.size)) return from_open_mpi();
  // srun sets PMI_RANK, too, for MPICH's programs.
  const bool under_srun = variable("SLURM_PROCID") && !variable(pmi.local_rank);
  if ((variable(pmi.rank) || variable(pmi.size)) && !under_srun) return from_hydra();
  // SLURM_NTASKS alone is also set in a shell that is yet to start the processes.
  if (variable("SLURM_PROCID")) return from_slurm();
  return std::nullopt;
}

}  // namespace bv
