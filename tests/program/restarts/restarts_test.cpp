// The whole program with --max-restarts on one machine: processes that are killed or hang, and
// failures after which the run must not be started again.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "base/files/file_io.h"
#include "base/json.h"
#include "comm/processes/restart.h"
#include "engine/console/log.h"
#include "engine/files/checkpoint.h"
#include "tests/program/program.h"
#include "tests/program/restarts/trains_again.h"

namespace bv::test {
namespace {

// Runs until it is stopped, so that no disturbance can come too late.
const std::string endless = on_vit + "--data synthetic --batch 4 --steps 1000000 ";
const std::string killed = "rank 1 was killed by SIGKILL (out of memory?)";

class ProgramRestarts : public ShallowProgramTest {
 protected:
  std::unique_ptr<Program> start(const std::string& words, ProgramOptions options = {}) const {
    return std::make_unique<Program>(folder_.path(), words, options);
  }
  void wait_for_restart(const Program& run, const std::string& folder, int number) const {
    const auto again = [&] { return trains_again(in(folder), number); };
    ASSERT_TRUE(wait_until([&] { return again() || run.has_ended(); }) && again());
  }
  // Stops the run and expects the log and the weights of an undisturbed run. Returns how it
  // ended.
  Finished expect_undisturbed(Program& run, const std::string& folder, const std::string& start) {
    kill(run.pid(), SIGTERM);
    Finished end = run.wait();
    EXPECT_EQ(end.code, 128 + SIGTERM) << end.errors;
    EXPECT_FALSE(run.anyone_left());
    const int64_t step = load_checkpoint(in(folder)).step;
    std::filesystem::remove_all(in("whole"));
    go(start + endless + "--steps " + std::to_string(step) + " --out whole");
    EXPECT_TRUE(contents(in(folder + "/last/weights.safetensors")) ==
                contents(in("whole/last/weights.safetensors")));
    for (const char* member : {"step", "loss"})
      EXPECT_EQ(metric(in(folder), "step", member), metric(in("whole"), "step", member));
    return end;
  }
};

TEST_F(ProgramRestarts, AProcessThatIsKilled) {
  const auto run = start("-n 2 " + endless + "--save-every 2steps --out run --max-restarts 3");
  ASSERT_TRUE(run->wait_for(in("run/last/state.json"), "crc32c"));
  kill(run->worker(1), SIGKILL);
  wait_for_restart(*run, "run", 1);
  const Finished end = expect_undisturbed(*run, "run", "-n 2 ");
  const std::string ended_in = last_metric(in("run"), "restart", "ended_in_step");
  EXPECT_EQ(end.errors,
            "restart 1 of 3 in 1 s; the run ended in step " + ended_in + ": " + killed + "\n");
  EXPECT_EQ(last_metric(in("run"), "restart", "cause"), killed);
  EXPECT_EQ(last_metric(in("run"), "restart", "rank"), "1");
  EXPECT_EQ(last_metric(in("run"), "restart", "of"), "3");
  const std::string from = last_metric(in("run"), "restart", "step");
  EXPECT_GE(std::stoi(from), 2);
  EXPECT_LE(std::stoi(from), std::stoi(ended_in));
  EXPECT_TRUE(has(end.output, "resumed after step " + from + "\n"));
  const Json facts = parse_json_object(contents(in("run/report.json")), "report.json");
  ASSERT_EQ(facts["restarts"].size(), 1u);
  EXPECT_EQ(facts["restarts"][0]["cause"], killed);
  const std::string line = "Restart 1 of 3: the run ended in step " + ended_in + ", " + killed +
                           "; it continued after step " + from;
  EXPECT_TRUE(has(contents(in("run/report.html")), "<p>" + line + "</p>"));
  // The line stays when the run is resumed, and when its page is written again.
  go("--resume run --steps " + std::to_string(load_checkpoint(in("run")).step + 1));
  go("report run");
  EXPECT_EQ(metric(in("run"), "restart", "restart").size(), 1u);
  EXPECT_TRUE(has(contents(in("run/report.html")), "<p>" + line + "</p>"));
}

// A request to stop arrives while the launcher ends the remaining processes.
TEST_F(ProgramRestarts, DontFollowARequestToStop) {
  const auto run = start("-n 2 " + endless + "--save-every 2steps --out run --max-restarts 3");
  ASSERT_TRUE(run->wait_for(in("run/last/state.json"), "crc32c"));
  kill(run->worker(0), SIGSTOP);  // until it is killed after two seconds
  const pid_t dies = run->worker(1);
  kill(dies, SIGKILL);
  ASSERT_TRUE(wait_until([&] { return kill(dies, 0) != 0; }));  // the launcher has reaped it
  kill(run->pid(), SIGTERM);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 128 + SIGTERM);
  EXPECT_EQ(end.errors, killed + "\n");
}

// A run killed before its first checkpoint starts from the beginning, in the same folder.
TEST_F(ProgramRestarts, AProcessThatIsKilledBeforeTheFirstCheckpoint) {
  for (const std::string out : {"--out run", ""}) {
    SCOPED_TRACE(out);
    const auto run = start("-n 2 " + endless + "--max-restarts 1 " + out);
    std::string folder = "run";
    if (out.empty()) {
      const auto named = [&] {
        return std::filesystem::exists(in("runs")) && !std::filesystem::is_empty(in("runs"));
      };
      ASSERT_TRUE(wait_until([&] { return named() || run->has_ended(); }));
      folder =
          "runs/" + std::filesystem::directory_iterator(in("runs"))->path().filename().string();
    }
    ASSERT_TRUE(run->wait_for(in(folder + "/metrics.jsonl"), "\"step\":2,"));
    kill(run->worker(1), SIGKILL);
    wait_for_restart(*run, folder, 1);
    expect_undisturbed(*run, folder, "-n 2 ");
    EXPECT_EQ(last_metric(in(folder), "restart", "step"), "0");
    if (out.empty()) {
      std::filesystem::remove_all(in(folder));
      EXPECT_TRUE(std::filesystem::is_empty(in("runs")));
    }
  }
}

TEST_F(ProgramRestarts, AProcessThatIsKilledAtOnce) {
  const auto run = start("-n 2 " + endless + "--out run --max-restarts 1");
  kill(run->worker(1), SIGKILL);
  wait_for_restart(*run, "run", 1);
  const Finished end = expect_undisturbed(*run, "run", "-n 2 ");
  EXPECT_EQ(end.errors,
            "restart 1 of 1 in 1 s; the run ended before its first step: " + killed + "\n");
}

TEST_F(ProgramRestarts, ThatCameToNoStepAreLoggedByTheNext) {
  const std::string words = on_vit + "--data synthetic --batch 4 --save-every 1 --out run ";
  go("-n 1 " + words + "--steps 1");
  const RestartRecord second{
      .step = 1, .number = 2, .most = 4, .cause = "death 2", .processes = 7, .processes_before = 8};
  write_text(in("run/metrics.jsonl"),
             contents(in("run/metrics.jsonl")) + to_json(second) +
                 "\n");  // the only one that is logged already
  Restart third{.number = 3, .most = 4, .after = {.cause = "death 3"}, .processes = 7};
  third.unlogged = {{.number = 1, .most = 4, .after = {.cause = "death 1"}, .processes = 9},
                    {.number = 2, .most = 4, .after = {.cause = "death 2"}, .processes = 8}};
  ProgramOptions options;
  options.environment = {{"RANK", "0"},
                         {"WORLD_SIZE", "1"},
                         {"LOCAL_RANK", "0"},
                         {"LOCAL_WORLD_SIZE", "1"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "1"},
                         {restart_variable, to_json(third)}};
  go(words + "--steps 2", options);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(metric(in("run"), "restart", "restart"), (Texts{"2", "1", "3"}));
  EXPECT_EQ(metric(in("run"), "restart", "cause"), (Texts{"death 2", "death 1", "death 3"}));
  EXPECT_EQ(metric(in("run"), "restart", "processes"), (Texts{"7", "8", "1"}));
  EXPECT_EQ(metric(in("run"), "restart", "processes_before"), (Texts{"8", "9", "7"}));
}

TEST_F(ProgramRestarts, AProcessThatHangs) {
  struct Case {
    std::string processes;
    int rank;
    std::string cause;
  };
  for (const auto& [processes, rank, cause] :
       {Case{"-n 2 ", 1, "rank 0: rank 1 has not answered for 2 s (--timeout)"},
        Case{"-n 1 ", 0, "rank 0 has given no sign of life for 2 s (--timeout)"}}) {
    std::filesystem::remove_all(in("run"));
    const auto run =
        start(processes + endless + "--save-every 2steps --timeout 2 --out run --max-restarts 1");
    ASSERT_TRUE(run->wait_for(in("run/last/state.json"), "crc32c"));
    kill(run->worker(rank), SIGSTOP);
    wait_for_restart(*run, "run", 1);
    const Finished end = expect_undisturbed(*run, "run", processes);
    EXPECT_EQ(last_metric(in("run"), "restart", "cause"), cause);
    EXPECT_EQ(last_metric(in("run"), "restart", "rank"), std::to_string(rank));
    EXPECT_TRUE(has(end.errors, ": " + cause + "\n"));
  }
}

TEST_F(ProgramRestarts, DyingTwiceInTheSameStepEndsTheRun) {
  const Finished end =
      run("-n 2 " + on_vit +
          "--data synthetic --batch 4 --steps 9 --optimizer sgd --warmup-epochs 0 --lr 1e30 "
          "--save-every 1steps --out run --max-restarts 5");
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors,
                  "restart 1 of 5 in 1 s; the run ended in step 2: step 2: the loss is "
                  "not finite"))
      << end.errors;
  EXPECT_TRUE(has(end.errors,
                  ": the run has ended in step 2 for the second time, so it is not "
                  "started again\n"))
      << end.errors;
  EXPECT_FALSE(has(end.errors, "restart 2")) << end.errors;
}

TEST_F(ProgramRestarts, MistakesOfTheUserEndTheRun) {
  for (const auto& [words, line] : {std::pair{"--max-restarts -1", "--max-restarts"},
                                    std::pair{"--max-restarts 1.5", "--max-restarts"},
                                    std::pair{"--max-restarts 3 --data nowhere", "nowhere"}}) {
    const Finished end = run("-n 2 " + endless + words);
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(end.errors.ends_with('\n') &&
                is_line(end.errors.substr(0, end.errors.size() - 1), line));
  }
}

// The batch of 4 images stays, and 3 processes can't divide it.
TEST_F(ProgramRestarts, AProcessThatIsKilledTwiceAtItsStartIsLeftOut) {
  const auto run = start("-n 4 " + endless + "--out run --max-restarts 5 --min-nproc 2");
  const pid_t first = run->worker(3);
  kill(first, SIGKILL);
  std::optional<pid_t> second;
  ASSERT_TRUE(wait_until([&] { return (second = run->worker_now(3)) && *second != first; }));
  kill(*second, SIGKILL);
  wait_for_restart(*run, "run", 2);
  kill(run->pid(), SIGTERM);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 128 + SIGTERM);
  EXPECT_FALSE(run->anyone_left());
  EXPECT_TRUE(end.errors.ends_with(
      "restart 2 of 5: 2 processes, 4 before; rank 3 is left out: it failed twice before "
      "its first step\n"))
      << end.errors;
  EXPECT_EQ(last_metric(in("run"), "restart", "processes"), "2");
  EXPECT_EQ(last_metric(in("run"), "restart", "processes_before"), "4");
  EXPECT_TRUE(has(contents(in("run/report.html")), " with 2 processes, 4 before</p>"));
  const int64_t step = load_checkpoint(in("run")).step;
  go("-n 2 " + endless + "--steps " + std::to_string(step) + " --out whole");
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
}

TEST_F(ProgramRestarts, MinNprocIsChecked) {
  for (const auto& [words, line] :
       {std::pair{"--min-nproc 3", "--min-nproc 3: more than the 2 processes of -n\n"},
        {"--min-nproc 0", "--min-nproc 0: must be at least 1 and at most 1024\n"},
        {"--min-nproc 1 --nnodes 2 --master-addr 127.0.0.1",
         "--min-nproc 1 is for one machine; --nnodes MIN:MAX says how many nodes are enough\n"}}) {
    const Finished end = run("-n 2 " + endless + words);
    EXPECT_EQ(end.code, 2);
    EXPECT_EQ(end.errors, line);
  }
  const Finished end =
      run("-n 2 " + on_vit + "--local-batch 2 --max-restarts 1 --min-nproc 1 --out run");
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.errors,
            "--local-batch can't be used with --min-nproc 1 and --max-restarts: the images of a "
            "step stay the same when the number of processes changes; give --batch\n");
}

// The same --local-batch is allowed again if the number of processes is the same.
TEST_F(ProgramRestarts, WithALocalBatch) {
  const std::string words =
      on_vit + "--data synthetic --local-batch 2 --resume run --device cpu --steps ";
  go("-n 2 " + words + "2");
  EXPECT_TRUE(has(go("-n 2 " + words + "3").output, "resumed after step 2\n"));
  const Finished other = run("-n 1 " + words + "4");
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.errors,
            "--local-batch 2 is a batch of 2 with this number of processes, the run in run has 4; "
            "leave it out, or start as many as the run had\n");
}

// torchrun has its own --max-restarts, which starts this command again.
TEST_F(ProgramRestarts, UnderAnotherLauncher) {
  const ProgramOptions rank = {.environment = {{"RANK", "0"},
                                               {"WORLD_SIZE", "1"},
                                               {"LOCAL_RANK", "0"},
                                               {"LOCAL_WORLD_SIZE", "1"},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", "29500"}}};
  ProgramOptions again = rank;
  again.environment.emplace_back("TORCHELASTIC_RESTART_COUNT", "1");
  const std::string words = on_vit + "--data synthetic --batch 4 --resume run --steps ";
  const Finished refused = refuse(words + "2 --max-restarts 3", rank.environment);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(has(refused.errors, "--max-restarts 3 is for processes that ./launcher starts"));
  EXPECT_FALSE(std::filesystem::exists(in("run")));
  go(words + "2", rank);
  EXPECT_TRUE(has(go(words + "3", again).output, "resumed after step 2\n"));
  // Our launcher, too, needs --resume if torchrun has started it again; it may use --max-restarts.
  again.environment = {{"TORCHELASTIC_RESTART_COUNT", "1"}};
  const Finished anew =
      run_program(folder_.path(), "-n 2 " + endless + "--out other --max-restarts 3", again);
  EXPECT_EQ(anew.code, 2);
  EXPECT_TRUE(has(anew.errors, "TORCHELASTIC_RESTART_COUNT is 1"));
  const auto resumed =
      start("-n 2 " + endless + "--resume auto --out other --max-restarts 3", again);
  ASSERT_TRUE(resumed->wait_for(in("other/metrics.jsonl"), "\"step\":2,"));
  kill(resumed->worker(1), SIGKILL);
  wait_for_restart(*resumed, "other", 1);
  expect_undisturbed(*resumed, "other", "-n 2 ");
}

// Kills a process, the launcher or both at random moments, and starts the launcher again by the
// same command. BAREVISION_CHAOS_SEED repeats the moments.
TEST_F(ProgramRestarts, KilledAtRandomMoments) {
  const char* given = std::getenv("BAREVISION_CHAOS_SEED");
  const unsigned seed = given && *given ? unsigned(std::atoi(given)) : unsigned(getpid());
  SCOPED_TRACE("BAREVISION_CHAOS_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  const int moments = std::getenv("BAREVISION_TEST_ALL") ? 60 : 3;
  const std::string words =
      "-n 2 " + endless + "--save-every 3steps --resume auto --out run --max-restarts 100";
  auto run = start(words);
  for (int i = 0; i < moments; ++i) {
    usleep(unsigned(below(2000000)));
    const int act = i < 3 ? i : below(3);
    if (const auto worker = run->worker_now(below(2)); worker && act != 1) kill(*worker, SIGKILL);
    if (act > 0) kill(run->pid(), SIGKILL);
    // Two deaths may by chance fall in the same step, which ends the run.
    if (act == 0 && !run->has_ended()) continue;
    const Finished end = run->wait();
    EXPECT_EQ(end.code, 128 + SIGKILL) << end.errors;
    EXPECT_TRUE(act > 0 || has(end.errors, " for the second time"));
    EXPECT_FALSE(run->anyone_left());
    run = start(words);
  }
  // Whatever happened last, the run trains again.
  const size_t steps = metric(in("run"), "step", "step").size();
  ASSERT_TRUE(wait_until(
      [&] { return metric(in("run"), "step", "step").size() > steps + 5 || run->has_ended(); }));
  expect_undisturbed(*run, "run", "-n 2 ");
}

}  // namespace
}  // namespace bv::test
