// Run folders that two runs want to use, and those of runs killed before their first checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "engine/files/checkpoint.h"
#include "engine/files/event_file_names.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

const std::string short_steps = on_vit + "--data synthetic --batch 4 --optimizer sgd ";
const std::string endless = short_steps + "--steps 100000 --out run ";

class ProgramFolder : public ShallowProgramTest {
 protected:
  void kill_at_step_2(const std::string& words) const {
    Program run(folder_.path(), words);
    ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
    kill(run.pid(), SIGKILL);
    EXPECT_EQ(run.wait().code, 128 + SIGKILL);
    EXPECT_FALSE(run.anyone_left());
  }
  void expect_code_2(const std::string& words, const std::string& errors) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, errors) << words;
  }
};

TEST_F(ProgramFolder, IsOneRunsAtATime) {
  Program first(folder_.path(), endless + "--save-every 1steps");
  ASSERT_TRUE(first.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  const std::string in_use = "run is in use by process " + std::to_string(first.worker(0)) + "\n";
  expect_code_2("--resume run", in_use);
  expect_code_2("-n 2 --resume run", in_use);
  expect_code_2(endless, in_use);
  EXPECT_EQ(run("--resume run --plan").code, 0);
  go(short_steps + "--steps 1 --config run/config.json --out other");
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait().code, 128 + SIGTERM);
  EXPECT_FALSE(fs::exists(in("run/.lock")));
  const int64_t step = load_checkpoint(in("run")).step;
  kill_at_step_2("--resume run --steps 100000");
  go("--resume run --steps " + std::to_string(step + 10));  // a killed run holds no lock
  EXPECT_EQ(load_checkpoint(in("run")).step, step + 10);
}

// Without --out, runs of the same second get separate folders.
TEST_F(ProgramFolder, OfRunsThatStartTogether) {
  const char* given = std::getenv("BAREVISION_ROUNDS");
  const int pairs = given ? std::atoi(given) : 2;
  for (int pair = 0; pair < pairs; ++pair) {
    const std::string words = on_vit + "--data synthetic --batch 4 --steps 1";
    Program one(folder_.path(), words), two(folder_.path(), words);
    EXPECT_EQ(one.wait().code, 0);
    EXPECT_EQ(two.wait().code, 0);
  }
  int whole = 0;
  for (const auto& run : fs::directory_iterator(in("runs")))
    whole += load_checkpoint(run.path()).step == 1;
  EXPECT_EQ(whole, 2 * pairs);
}

TEST_F(ProgramFolder, ResumedTwiceAtOnceStaysWhole) {
  go(short_steps + "--steps 2 --save-every 1steps --out run");
  const char* given = std::getenv("BAREVISION_ROUNDS");
  const int rounds = given ? std::atoi(given) : 4;
  for (int round = 1; round <= rounds; ++round) {
    const int64_t end = 2 + 2 * round;
    const std::string words =
        (round % 2 ? "" : "-n 2 ") + std::string("--resume run --steps ") + std::to_string(end);
    Program one(folder_.path(), words), two(folder_.path(), words);
    for (Program* program : {&one, &two}) {
      const Finished finished = program->wait();
      const bool refused = finished.code == 2 && has(finished.errors, "run is in use by process ");
      EXPECT_TRUE(finished.code == 0 || refused) << finished.code << finished.errors;
    }
    EXPECT_EQ(load_checkpoint(in("run")).step, end);
  }
}

TEST_F(ProgramFolder, WithoutACheckpointIsResumedFromTheBeginningOrUsedAgain) {
  const std::string sum = "weights.safetensors";
  go(short_steps + "--steps 3 --out whole");
  kill_at_step_2(endless);
  const Finished resumed = go("--resume run --steps 3");
  EXPECT_TRUE(has(resumed.output, "run has no checkpoint yet: starting from the beginning\n"));
  EXPECT_EQ(contents(in("run/last/" + sum)), contents(in("whole/last/" + sum)));
  EXPECT_EQ(losses(in("run")), losses(in("whole")));

  fs::remove_all(in("run"));
  kill_at_step_2(endless);
  fs::create_directory(in("run/.saving-step"));
  for (const char* page : {"run/report.html", "run/report.json.partial"})
    write_text(in(page), "of an evaluation before the kill");
  go(short_steps + "--steps 3 --out run");
  EXPECT_EQ(contents(in("run/last/" + sum)), contents(in("whole/last/" + sum)));
  EXPECT_EQ(losses(in("run")), losses(in("whole")));
  std::set<std::string> names = names_in(in("run"));
  EXPECT_EQ(std::erase_if(names, is_event_file), size_t{BAREVISION_TENSORBOARD});
  EXPECT_EQ(names, (std::set<std::string>{"config.json", "metrics.jsonl", "last", "report.html",
                                          "report.json", "step-00000003"}));
  expect_code_2(endless,
                "--out run exists and is not empty; --resume run continues that run, another --out "
                "starts a new one\n");
}

// A job that is submitted again, or started again by torchrun or Slurm.
TEST_F(ProgramFolder, OneCommandStartsAndResumes) {
  const std::string weights = "/last/weights.safetensors";
  go(short_steps + "--steps 6 --out whole");
  for (const std::string processes : {"", "-n 2 "}) {
    const std::string words =
        processes + short_steps + "--save-every 1steps --resume auto --out run ";
    for (const std::string end : {"2", "4", "4", "6"}) go(words + "--steps " + end);
    EXPECT_EQ(losses(in("run")).size(), 6u);
    if (processes.empty()) {
      EXPECT_TRUE(contents(in("run" + weights)) == contents(in("whole" + weights)));
    }
    expect_code_2(words + "--steps 7 --seed 5",
                  "--seed can't be changed with --resume: the run has 0; leave it out, or start a "
                  "new run from --weights run" +
                      weights + "\n");
    fs::remove_all(in("run"));
  }
  // Killed before its first checkpoint, and then started again by the same command.
  const std::string again = short_steps + "--resume run ";
  kill_at_step_2(again + "--steps 100000");
  go(again + "--steps 3");
  EXPECT_EQ(load_checkpoint(in("run")).step, 3);
}

// All ranks save after the same step, though only rank 0 reads the clock. With accumulation or
// micro-batches, rank 0 must send its request only once per update.
TEST_F(ProgramFolder, SavesByTime) {
  for (const std::string more :
       {"", "-n 2 ", "-n 2 --accumulate 3 ", "-n 2 --pipeline 2 --micro-batches 2 "}) {
    Program run(folder_.path(), more + endless + "--save-every 1s --keep 100");
    ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
    const auto checkpoints = [&] {
      return std::ranges::count_if(
          names_in(in("run")), [](const std::string& name) { return name.starts_with("step-"); });
    };
    EXPECT_TRUE(wait_until([&] { return checkpoints() >= 2; })) << more;
    kill(run.pid(), SIGKILL);  // a stop would save once more
    run.wait();
    EXPECT_GT(load_checkpoint(in("run")).step, 0) << more;
    go(short_steps + "--resume run --steps " + std::to_string(load_checkpoint(in("run")).step + 1));
    fs::remove_all(in("run"));
  }
}

// A checkpoint has the weights of its step although the device has begun the next one.
TEST_F(ProgramFolder, SavesByTimeOnADeviceThatRunsAhead) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  const std::string words = short_steps + "--device simt ";
  Program run(folder_.path(), words + "--steps 1000000 --save-every 1s --out run");
  ASSERT_TRUE(run.wait_for(in("run/last/state.json"), "crc32c"));
  kill(run.pid(), SIGKILL);
  run.wait();
  const std::string steps = std::to_string(load_checkpoint(in("run")).step + 2);
  go(short_steps + "--resume run --save-every 100 --steps " + steps);
  go(words + "--save-every 100 --out straight --steps " + steps);
  for (const char* file : {"/last/weights.safetensors", "/last/state.safetensors"})
    EXPECT_TRUE(contents(in("run") + file) == contents(in("straight") + file)) << file;
}

TEST_F(ProgramFolder, AJobThatIsStartedAgainIsToldToResume) {
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    const auto as = [&](const std::string& count, const std::string& words) {
      return run_program(folder_.path(), short_steps + words, {.environment = {{name, count}}});
    };
    const Finished end = refuse(short_steps + "--steps 1 --out run", {{name, "1"}});
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1),
                        std::string(name) + " is 1: the job was started again"))
        << end.errors;
    EXPECT_FALSE(fs::exists(in("run")));
    EXPECT_EQ(as("0", "--steps 1 --out run").code, 0);
    EXPECT_EQ(as("2", "--steps 2 --resume run").code, 0);
    EXPECT_EQ(load_checkpoint(in("run")).step, 2);
    fs::remove_all(in("run"));
  }
}

// With --weights, which a resumed run with a checkpoint doesn't read again.
TEST_F(ProgramFolder, WithoutACheckpointStartsFromTheSameWeights) {
  go(short_steps + "--steps 1 --out first");
  const std::string from = "--weights first/last/weights.safetensors ";
  go(short_steps + from + "--steps 3 --out whole");
  kill_at_step_2(endless + from);
  go("--resume run --steps 3");
  EXPECT_EQ(losses(in("run")), losses(in("whole")));
}

// After a kill between the first save's last two steps, or a copy without links.
TEST_F(ProgramFolder, WithoutALinkIsResumedFromItsNewestStep) {
  go(short_steps + "--steps 4 --save-every 2steps --keep 2 --out run");
  fs::remove(in("run/last"));
  const Finished end = go("--resume run --steps 5");
  EXPECT_TRUE(has(end.output, "resumed after step 4\n"));
  EXPECT_EQ(load_checkpoint(in("run")).step, 5);
}

// The warning appears once: the next checkpoint records the new images.
TEST_F(ProgramFolder, ChangedImagesAreWarnedOf) {
  make_class_folders(in("photos"), 2, 4);
  go(on_vit + "--data photos --batch 4 --steps 1 --out run");
  const std::string warning = "warning: files in " + in("photos") + " have changed in size, time";
  EXPECT_FALSE(has(go("--resume run --steps 2").output, warning));
  write_text(in("photos/class0/0.ppm"), contents(in("photos/class1/1.ppm")));
  EXPECT_TRUE(has(go("--resume run --steps 3").output, warning));
  EXPECT_FALSE(has(go("--resume run --steps 4").output, warning));
}

// The same names in the same classes are the same data.
TEST_F(ProgramFolder, ResumesWithACopyOfItsImages) {
  make_class_folders(in("photos"), 2, 4);
  make_class_folders(in("others"), 2, 5);
  go(on_vit + "--data photos --batch 4 --steps 1 --out run");
  fs::copy(in("photos"), in("copy"), fs::copy_options::recursive);
  go("--resume run --data copy --steps 2");
  EXPECT_TRUE(has(contents(in("run/config.json")), "\"data\": \"" + in("copy") + "\""));
  const Finished end = run("--resume run --data others --steps 3");
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.errors,
                  "others: its files or classes have changed since the run in run "
                  "began"))
      << end.errors;
  fs::rename(in("others/class1"), in("others/class9"));
  expect_code_2("--resume run --data others --steps 3",
                "others: its classes are not those of the run in run: others has no class "
                "'class1'\n");
  fs::rename(in("others/class9"), in("others/class1"));
  fs::create_directory(in("others/class2"));
  fs::copy(in("others/class1/0.ppm"), in("others/class2/0.ppm"));
  expect_code_2("--resume run --data others --steps 3",
                "others: its classes are not those of the run in run: the run leaves out 'class2', "
                "a class of others\n");
  expect_code_2("--resume run --data synthetic --steps 3",
                "--data can't be changed with --resume: the run has " + in("copy") +
                    "; leave it out, or start a new run from --weights "
                    "run/last/weights.safetensors\n");
}

TEST_F(ProgramFolder, OfSomeoneElseIsLeftAlone) {
  for (const std::string name : {"notes.txt", "config.json"}) {
    write_text(in("run/" + name), "{}");
    expect_code_2(endless, std::string("--out run exists and is not empty") +
                               (name == "notes.txt"
                                    ? ", and has no run; name a new folder, like --out run/run\n"
                                    : "; --resume run continues that run, another --out starts a "
                                      "new one\n"));
    EXPECT_EQ(names_in(in("run")), std::set<std::string>{name});
    if (name == "notes.txt")
      expect_code_2(short_steps + "--resume run",
                    "--resume run: not empty, and not a run folder: it has no config.json\n");
    fs::remove_all(in("run"));
  }
}

}  // namespace
}  // namespace bv::test
