// How processes learn their rank and find each other, under any launcher.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/connect/host_comm.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

// ---- the environment ----------------------------------------------------------------------------

// Sets the variables "NAME=value" and unsets all other relevant ones during its lifetime.
class Environment {
 public:
  explicit Environment(const std::vector<std::string>& variables) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "GROUP_RANK",
                             "GROUP_WORLD_SIZE",
                             "SLURM_NODEID",
                             shared_fd_variable,
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "SLURM_STEPID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_TASKS_PER_NODE",
                             "PMIX_NAMESPACE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS"})
      unsetenv(name);
    for (const std::string& variable : variables) {
      const size_t equals = variable.find('=');
      names_.push_back(variable.substr(0, equals));
      setenv(names_.back().c_str(), variable.c_str() + equals + 1, 1);
    }
  }
  Environment(const Environment&) = delete;
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

std::string complaint() {
  return error_of([] { world_from_environment(); });
}

TEST(World, IsNothingWithoutVariables) {
  const Environment given({"SLURM_NTASKS=4"});
  EXPECT_FALSE(world_from_environment());
}

// Rank 3 of 4, the second on its machine.
void expect_last_of_two_by_two(const World& world) {
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
}

TEST(World, ReadsTorchrun) {
  const Environment given({"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                           "MASTER_ADDR=node0", "MASTER_PORT=29500", "SLURM_PROCID=0"});
  const auto world = world_from_environment();
  ASSERT_TRUE(world);
  expect_last_of_two_by_two(*world);
  EXPECT_FALSE(world->launched);
  EXPECT_TRUE(world->several_machines());
  EXPECT_EQ(world->host, "node0");
  EXPECT_EQ(world->meeting_port(), 29501);
  EXPECT_EQ(world->node, 1);
  EXPECT_EQ(world->machine, name_of_machine());
}

// Node 2 of 3, with two ranks each.
TEST(World, ReadsOurLauncher) {
  const Environment given({"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                           "GROUP_RANK=2", "GROUP_WORLD_SIZE=3", "MASTER_ADDR=node0",
                           "MASTER_PORT=29600", "BAREVISION_SHARED_FD=7"});
  const auto world = world_from_environment();
  ASSERT_TRUE(world);
  EXPECT_TRUE(world->launched && world->several_machines());
  EXPECT_EQ(world->shared_fd, 7);
  EXPECT_EQ(world->node, 2);
  EXPECT_EQ(world->nodes, 3);
  EXPECT_EQ(world->meeting_port(), 29600);
  EXPECT_EQ(world->master, "node0:29600");  // so that runs don't share a rendezvous
}

TEST(World, ReadsSlurm) {
  const Environment given({"SLURM_PROCID=1", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_JOB_ID=77",
                           "SLURM_NODEID=2", "SLURM_TASKS_PER_NODE=2(x3)", "SLURM_STEP_ID=0"});
  const auto world = world_from_environment();
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->size, 6);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->node, 2);
}

// Hydra's variables (MPICH, Intel MPI), also in a Slurm job script; srun, too, sets PMI_RANK.
TEST(World, ReadsHydra) {
  const std::vector<std::string> ranks = {"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1",
                                          "MPI_LOCALNRANKS=2"};
  for (const bool in_script : {false, true}) {
    std::vector<std::string> variables = ranks;
    if (in_script) variables.insert(variables.end(), {"SLURM_PROCID=0", "SLURM_NTASKS=4"});
    const Environment given(variables);
    const auto world = world_from_environment();
    ASSERT_TRUE(world);
    expect_last_of_two_by_two(*world);
    EXPECT_EQ(world->master, "hydra " + std::to_string(getppid()));
  }
  const Environment by_srun({"PMI_RANK=0", "PMI_SIZE=6", "SLURM_PROCID=1", "SLURM_NTASKS=6",
                             "SLURM_LOCALID=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"});
  EXPECT_EQ(world_from_environment()->rank, 1);
}

TEST(World, NamesWhatIsMissingOrWrong) {
  using Variables = std::vector<std::string>;
  const std::string range = " in the environment should be a number from 0 to 1";
  const std::pair<Variables, std::string> cases[] = {
      {{"RANK=1"}, "RANK is set in the environment, WORLD_SIZE is no"},
      {{"WORLD_SIZE=2"}, "WORLD_SIZE is set in the environment, RANK is not"},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost"}, "MASTER_PORT is not"},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456"},  // a PyTorchJob
       "LOCAL_RANK and LOCAL_WORLD_SIZE are not: set them to 0 and 1 for one process per machine"},
      {{"RANK=2", "WORLD_SIZE=2"}, "RANK=2" + range},
      {{"RANK=x", "WORLD_SIZE=2"}, "RANK=x" + range},
      {{"PMI_RANK=1"}, "PMI_SIZE"},
      {{"PMI_RANK=1", "PMI_SIZE=2"},  // nothing says which ranks are on this machine
       "PMI_RANK and PMI_SIZE are set in the environment, MPI_LOCALRANKID is not"},
      {{"SLURM_PROCID=0", "SLURM_NTASKS=2"},  // a job script without srun
       "SLURM_NTASKS is 2, but srun has not started this process (there is no SLURM_STEP_ID)"}};
  for (const auto& [variables, part] : cases) {
    const Environment given(variables);
    EXPECT_TRUE(is_line(complaint(), part));
  }
}

// ---- meeting ------------------------------------------------------------------------------------

World world_of(int rank, int size, const std::string& master) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.master = master + std::to_string(getppid());
  world.variables = "RANK, WORLD_SIZE";
  return world;
}

// Starts a process that joins the others and sums up `part` over them.
std::unique_ptr<Child> meet(int rank, int size, const std::string& master, double timeout, int part,
                            int expected) {
  return std::make_unique<Child>([=] {
    World world = world_of(rank, size, master);
    const auto peers = connect_hosts(world, 4096, timeout);
    float sum = float(part);
    peers->all_reduce(&sum, 1, nullptr);
    return sum == float(expected) ? 0 : 1;
  });
}

TEST(Meeting, WorksInAnyOrderAndTwoJobsStayApart) {
  Ranks all;
  for (int rank : {2, 0, 1}) {
    all.push_back(meet(rank, 3, "job a ", hang, 1, 3));
    all.push_back(meet(rank, 3, "job b ", hang, 100, 300));
    usleep(20000);
  }
  expect_all_end_well(all);
}

TEST(Meeting, NamesWhoDoesntCome) {
  Ranks two;
  for (int rank : {0, 1}) two.push_back(meet(rank, 3, "job c ", 2, 1, 3));
  const Ending first = two[0]->wait(), second = two[1]->wait();
  EXPECT_EQ(first.code, 99);
  EXPECT_TRUE(has(first.errors, "rank 0 waited 2 s for rank 2 (RANK, WORLD_SIZE in the"));
  EXPECT_EQ(second.code, 99);
  EXPECT_TRUE(has(second.errors, "rank 1: rank 0 waited 2 s for rank 2 (RANK, WORLD_SIZE in the"));
}

TEST(Meeting, NamesRankZeroWhenItDoesntCome) {
  const Ending ending = meet(1, 2, "job d ", 0.3, 1, 2)->wait();
  EXPECT_TRUE(has(ending.errors, "rank 1 waited 0.3 s for rank 0"));
}

TEST(Meeting, TurnsAwayWhoDoesntBelong) {
  Ranks three;
  three.push_back(meet(0, 3, "job e ", hang, 1, 3));
  const Ending other = meet(1, 2, "job e ", hang, 1, 2)->wait();
  EXPECT_TRUE(has(other.errors, "rank 0 has another number of processes"));
  auto one = meet(1, 3, "job e ", hang, 1, 3), twin = meet(1, 3, "job e ", hang, 1, 3);
  Child& late = first_to_end(*one, *twin);
  EXPECT_TRUE(has(late.wait().errors, "two processes are rank 1"));
  three.push_back(std::move(&late == twin.get() ? one : twin));
  three.push_back(meet(2, 3, "job e ", hang, 1, 3));
  expect_all_end_well(three);
}

}  // namespace
}  // namespace bv::test
