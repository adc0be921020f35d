// Workers for tests that call launch_workers(). The test program starts itself again as a worker,
// which never reaches main().
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/stop_signals.h"
#include "base/text.h"
#include "comm/connect/device_communicator.h"
#include "comm/connect/host_comm.h"
#include "comm/processes/affinity.h"
#include "comm/processes/restart.h"
#include "comm/processes/worker_status.h"
#include "simt/device/control.h"
#include "tests/comm/communicator_checks.h"
#include "tests/comm/processes.h"
#include "tests/engine/pipeline/pipeline_workers.h"
#include "tests/engine/training/gradient_sync_workers.h"
#include "tests/models/resnet_workers.h"

namespace bv::test {
namespace {

using Words = std::vector<std::string>;

World own_world() {
  const auto world = world_from_environment();
  if (!world) std::exit(90);
  return *world;
}

int number(const Words& words, size_t i) {
  return i < words.size() ? std::atoi(words[i].c_str()) : 0;
}

// exit CODE0 CODE1 ...: each rank with its code
int exit_with(const Words& words) { return number(words, 1 + own_world().rank); }

// sleep: until killed
int sleep_on(const Words&) {
  std::fprintf(stderr, "up %d\n", own_world().rank);
  while (true) pause();
}

// A run: all-reduces until the ranks agree to stop. At `step`, `rank` sends itself `signal`.
// train TIMEOUT_MS RANK STEP SIGNAL [slow-save|endless-save]
int train(const Words& words) {
  catch_stop_signals();
  World world = own_world();
  pin_to_share(world);
  const auto peers = connect_hosts(world, 1 << 16, number(words, 1) * 1e-3);
  std::vector<float> data(50000);
  for (int step = 0;; ++step) {
    if (world.rank == number(words, 2) && step == number(words, 3)) raise(number(words, 4));
    std::fill(data.begin(), data.end(), 1.0f);
    float stop = stop_signal() ? 1.0f : 0.0f;
    peers->all_reduce(data.data(), data.size(), nullptr);
    peers->all_reduce(&stop, 1, nullptr);
    if (data[0] != float(world.size) || data.back() != float(world.size)) return 91;
    if (step == 3) std::fprintf(stderr, "up %d\n", world.rank);
    if (stop > 0) break;
    usleep(2000);
  }
  // Rank 0 saves, which takes longer than the launcher's grace period after a failure.
  while (world.rank == 0 && words.size() > 5 && words[5] == "endless-save") pause();
  if (world.rank == 0 && words.size() > 5) usleep(2500000);
  std::fprintf(stderr, "saved %d\n", world.rank);
  return 128 + (stop_signal() ? stop_signal() : SIGTERM);
}

// told: on a stop signal rank 0 exits first, then rank 1 as if rank 0 had told it to stop
int told(const Words&) {
  catch_stop_signals();
  const int rank = own_world().rank;
  std::fprintf(stderr, "up %d\n", rank);
  wait_until([] { return stop_signal() != 0; });
  if (rank == 0) return 128 + stop_signal();
  wait_until([] { return children_of(getppid()).size() == 1; });
  return 128 + SIGTERM;
}

// last_way RANK: that rank stops itself (SIGSTOP) once it has left the run
int last_way(const Words& words) {
  World world = own_world();
  connect_hosts(world, 1 << 16, hang)->barrier();
  if (world.rank == number(words, 1)) raise(SIGSTOP);
  return 0;
}

// fail CODE: every rank reports the same error and exits with CODE
int fail(const Words& words) {
  fail_worker(own_world(), "the folder is missing", number(words, 1));
}

// half: rank 1 fails while the others wait for it
int fail_alone(const Words&) {
  World world = own_world();
  if (world.rank == 1) {
    usleep(200000);
    fail_worker(world, "a.jpg is not an image", 2);
  }
  connect_hosts(world, 1 << 16, hang)->barrier();
  return 0;
}

// sum: a collective, under any launcher
int sum(const Words&) {
  World world = own_world();
  pin_to_share(world);
  const auto peers = connect_hosts(world, 1 << 16, hang);
  double value = 1 + world.rank;
  peers->all_reduce(&value, 1, nullptr);
  std::fprintf(stderr, "sum %g of %d\n", value, world.size);
  return value == world.size * (world.size + 1) / 2.0 ? 0 : 92;
}

// Runs a function of another file on a device, on all ranks.
int on_device(const Words& words, int (*work)(Communicator&, Backend&, DeviceKind),
              bool staged = false) {
  World world = own_world();
  const DeviceKind device = words[1] == "simt" ? DeviceKind::simt : DeviceKind::cpu;
  auto hosts = connect_hosts(world, 1 << 12, 60);
  const auto backend = make_backend(device, {.index = 0, .threads = 1, .overlap = true});
  const auto peers = make_communicator(
      device, *backend,
      {.place = {.rank = world.rank, .size = world.size, .timeout = 60, .supervised = true},
       .fd = world.shared_fd,
       .host_comm = std::move(hosts)},
      staged);
  const int code = work(*peers, *backend, device);
  peers->barrier();
  return code;
}
// synced-batchnorm DEVICE, mean-statistics DEVICE: resnet_workers.h
int run_synced_batchnorm(const Words& words) { return on_device(words, synced_batchnorm); }
int run_mean_statistics(const Words& words) { return on_device(words, mean_statistics); }

// channels DEVICE: gradient_sync_workers.h
int run_ordered_sum(const Words& words) { return on_device(words, ordered_sum_has_one_order); }
int run_channels(const Words& words) { return on_device(words, channels_change_no_bit); }

// pipelined DEVICE [staged], pipelined-orders DEVICE: pipeline_workers.h
int run_pipelined(const Words& words) {
  return on_device(words, stages_train_as_the_whole, words.size() > 2);
}
int run_pipelined_orders(const Words& words) { return on_device(words, no_order_changes_a_bit); }

// communicator DEVICE direct|staged STREAM_SEED: communicator_checks.h
int run_communicator(const Words& words) {
  simt::stream_seed = static_cast<unsigned>(number(words, 3));
  if (words[2] == "staged")
    return on_device(
        words,
        [](Communicator& c, Backend& b, DeviceKind) {
          return check_communicator(c, b, Side::one_after_another);
        },
        true);
  return on_device(words, [](Communicator& c, Backend& b, DeviceKind) {
    return check_communicator(c, b, Side::by_side);
  });
}

// affinity: prints how many CPUs and threads this process may use
int affinity(const Words&) {
  const World world = own_world();
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  std::fprintf(stderr, "rank %d cpus %d threads %d omp %s\n", world.rank, CPU_COUNT(&cpus),
               pin_to_share(world), std::getenv("OMP_NUM_THREADS"));
  return 0;
}

// in-turn: once the launcher is stopped, rank 1 fails, then rank 0
int in_turn(const Words&) {
  const int rank = own_world().rank;
  std::fprintf(stderr, "up %d\n", rank);
  const auto rank1_has_ended = [] {
    return std::ranges::any_of(children_of(getppid()), [](pid_t p) { return state_of(p) == 'Z'; });
  };
  const bool in_time =
      wait_until([=] { return rank == 1 ? state_of(getppid()) == 'T' : rank1_has_ended(); });
  return in_time ? 8 - rank : 94;
}

// stubborn: rank 1 fails, the others ignore SIGTERM
int stubborn(const Words&) {
  World world = own_world();
  if (world.rank != 1) signal(SIGTERM, SIG_IGN);
  connect_hosts(world, 1 << 16, hang)->barrier();
  return world.rank == 1 ? 7 : sleep_on({});
}

// stopping: SIGTERM stops rank 1, which then looks like a process that hangs in the kernel
int stop_by_sigterm(const Words&) {
  World world = own_world();
  const auto peers = connect_hosts(world, 1 << 16, hang);
  signal(SIGTERM, world.rank == 1 ? [](int) { while (true) raise(SIGSTOP); } : [](int) {});
  std::fprintf(stderr, "up %d\n", world.rank);
  while (true) sleep(1);
}

// ends HOW STEP...: in the k-th start rank 1 ends in the k-th STEP, by signal HOW or, if HOW is
// negative, with the exit code -HOW; in a start without a STEP all ranks exit with code 0
int ends(const Words& words) {
  const World world = own_world();
  const auto restart = restart_from_environment();
  const size_t start = 2 + (restart ? size_t(restart->number) : 0);
  WorkerStatus status(world);
  status.claimed("runs/one");
  if (restart && restart->folder != "runs/one") return 95;
  size_t unlogged = 0;  // the restarts just before this one that reached no step
  while (unlogged + 1 + 2 < start && number(words, start - 1 - unlogged) == 0) ++unlogged;
  if (restart && restart->unlogged.size() != unlogged) return 97;
  if (start >= words.size()) return 0;
  if (world.rank != 1) return sleep_on(words);
  status.begins(number(words, start));
  if (const int how = number(words, 1); how < 0) _exit(-how);
  raise(number(words, 1));
  return 96;
}

// broken DEVICE...: a rank with one of these devices ends before its first step; the others sleep
// if there are four ranks, and print their devices if there are fewer
int broken(const Words& words) {
  const World world = own_world();
  WorkerStatus status(world);
  const int device = world.device < 0 ? world.local_rank : world.device;
  for (size_t i = 1; i < words.size(); ++i)
    if (number(words, i) == device) _exit(3);
  const auto restart = restart_from_environment();
  if (world.size == 4) return sleep_on(words);
  status.begins(1);
  std::fprintf(stderr, "device %d, %d before\n", device, restart ? restart->processes : 0);
  return 0;
}

__attribute__((constructor)) void be_a_worker() {
  const char* variable = std::getenv(worker_variable);
  if (!variable) return;
  const Words words = split(variable, ' ');
  const std::pair<const char*, int (*)(const Words&)> workers[] = {
      {"exit", exit_with},
      {"ends", ends},
      {"broken", broken},
      {"sleep", sleep_on},
      {"train", train},
      {"fail", fail},
      {"half", fail_alone},
      {"channels", run_channels},
      {"ordered-sum", run_ordered_sum},
      {"pipelined", run_pipelined},
      {"pipelined-orders", run_pipelined_orders},
      {"told", told},
      {"last_way", last_way},
      {"sum", sum},
      {"affinity", affinity},
      {"stubborn", stubborn},
      {"in-turn", in_turn},
      {"stopping", stop_by_sigterm},
      {"synced-batchnorm", run_synced_batchnorm},
      {"mean-statistics", run_mean_statistics},
      {"communicator", run_communicator}};
  int code = 93;
  try {
    for (const auto& [name, run] : workers)
      if (words[0] == name) code = run(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "threw %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace
}  // namespace bv::test
