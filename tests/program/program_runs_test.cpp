// The whole program: resumed runs, evaluations, measured times and memory, the contents of a run
// folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors.h"
#include "tests/data/data_files.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using Strings = std::vector<std::string>;

const std::string on_cifar = on_vit + "--data cifar --warmup-steps 2 ";

class ProgramRuns : public ShallowProgramTest {
 protected:
  ProgramRuns() { make_cifar(in("cifar")); }
  // The files exist and are identical.
  void expect_same_state(const std::string& a, const std::string& b) const {
    Strings files = {"/last/weights.safetensors", "/last/state.safetensors"};
    if (std::filesystem::exists(in(a) + "/last/ema.safetensors"))
      files.push_back("/last/ema.safetensors");
    for (const std::string& file : files) {
      const std::string one = contents(in(a) + file);
      EXPECT_GT(one.size(), 1000000u) << a << file;
      EXPECT_TRUE(one == contents(in(b) + file)) << a << " and " << b << " differ in " << file;
    }
  }
};

std::string keys_of(const std::string& line) {
  std::string keys;
  const Json object = parse_json_object(line, "metrics.jsonl");
  for (const auto& [name, value] : object.items()) keys += (keys.empty() ? "" : " ") + name;
  return keys;
}

TEST_F(ProgramRuns, RunFolderAndWhatIsPrinted) {
  make_class_folders(in("three"), 3, 6);
  go(on_cifar + "--batch 8 --steps 6 --out a");
  const Finished one = go(on_vit + "--data three --batch 4 --steps 1 --out b");
  EXPECT_TRUE(has(one.output, "\nclasses: class0, class1, class2\n")) << one.output;
  EXPECT_TRUE(has(one.output, "\nrun: b, 1 step\n"));
  const std::string step =
      "kind epoch step loss top1 lr grad_norm images_per_second data_seconds step_seconds "
      "bubble_seconds "
      "loss_scale skipped time";
  const auto epoch = [](const std::string& top5) {
    return "kind epoch step train_loss train_top1 val_loss val_top1 " + top5 +
           "lr images_per_second seconds eval_seconds save_seconds peak_memory_bytes "
           "host_memory_bytes host_peak_memory_bytes time";
  };
  // Five batches per epoch.
  const std::vector<std::string> wanted{
      step, step, step, step, step, epoch("val_top5 "), step, epoch("val_top5 ")};
  std::vector<std::string> found;
  std::istringstream lines(contents(in("a/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) found.push_back(keys_of(line));
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(metric(in("a"), "step", "step"), (Strings{"1", "2", "3", "4", "5", "6"}));
  EXPECT_EQ(metric(in("a"), "step", "epoch"), (Strings{"1", "1", "1", "1", "1", "2"}));
  EXPECT_EQ(metric(in("a"), "epoch", "step"), (Strings{"5", "6"}));
  // Three classes have no top-5.
  EXPECT_EQ(metric(in("b"), "epoch", "val_top1").size(), 1u);
  EXPECT_TRUE(metric(in("b"), "epoch", "val_top5").empty());

  const Json config = parse_json_object(contents(in("a/config.json")), "config.json");
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : config.items()) values[name] = scalar_text(value);
  EXPECT_EQ(values["model"], "vit_tiny");
  EXPECT_EQ(values["batch"], "8");
  EXPECT_EQ(values["steps"], "6");
  EXPECT_EQ(values["lr"], "0.001");  // the recipe's for CIFAR
  EXPECT_EQ(values["device"], "cpu");
  EXPECT_EQ(std::filesystem::weakly_canonical(values["data"]),
            std::filesystem::weakly_canonical(in("cifar")));
  // config.json can serve as another run's --config.
  go("--config a/config.json --out c");
  expect_same_state("a", "c");
}

TEST_F(ProgramRuns, PlanIsWhatARunReports) {
  const std::string words = on_cifar + "--batch 8 ";
  const std::string plan = go(words + "--plan").output;
  EXPECT_FALSE(std::filesystem::exists(in("runs")));
  go(words + "--steps 1 --out a");
  const auto peak = metric(in("a"), "epoch", "peak_memory_bytes");
  ASSERT_EQ(peak.size(), 1u);
  EXPECT_TRUE(has(plan, " " + peak[0] + " bytes"));
  EXPECT_TRUE(has(plan, "\none step: "));
  EXPECT_TRUE(has(go("vit_tiny --data cifar --plan").output,
                  "\nbatch 4, lr 0.00025, epochs 60, not the recipe's 64, 0.001, 30: there are 44 "
                  "images to train on\n"));
  EXPECT_TRUE(has(go("vit_tiny --data cifar --epochs 3 --plan").output,
                  "\nbatch 4, lr 0.00025, not the recipe's 64, 0.001: there are 44 images "));
  // Eight images for each batch norm.
  EXPECT_TRUE(
      has(go("-n 2 resnet18 --data cifar --plan").output,
          "\nbatch 16, lr 0.0063, epochs 60, not the recipe's 256, 0.1, 30: there are 44 "));
}

// Compares with /proc in the middle of a later epoch, and then kills the run.
TEST_F(ProgramRuns, MeasuresTheMemoryThatTheSystemCounts) {
  Program run(folder_.path(), on_cifar + "--batch 8 --epochs 1000 --out a");
  ASSERT_TRUE(run.wait_for(in("a/metrics.jsonl"), "\"kind\":\"epoch\",\"epoch\":4"));
  const std::string status = contents("/proc/" + std::to_string(run.worker(0)) + "/status");
  kill(-run.pid(), SIGKILL);
  run.wait();
  const auto kibi = [&](const char* key) {
    const size_t at = status.find(key);
    return at == status.npos ? 0 : std::strtod(status.c_str() + at + std::strlen(key), nullptr);
  };
  const double peak = 1024 * kibi("\nVmHWM:"), now = 1024 * kibi("\nVmRSS:");
  EXPECT_NEAR(std::stod(metric(in("a"), "epoch", "host_peak_memory_bytes").back()), peak,
              .02 * peak);
  EXPECT_NEAR(std::stod(metric(in("a"), "epoch", "host_memory_bytes").back()), now, .02 * now);
  EXPECT_GT(peak, std::stod(metric(in("a"), "epoch", "peak_memory_bytes")[0]));
}

TEST_F(ProgramRuns, EvaluatesOnlyWhenAsked) {
  make_class_folders(in("three"), 3, 6);
  const auto evaluated = [&](const std::string& run) {
    Strings epochs;
    for (const std::string& loss : metric(in(run), "epoch", "val_loss"))
      epochs.push_back(loss.empty() ? "-" : "e");  // null is read as empty
    return join(epochs, "");
  };
  const std::string words = on_cifar + "--batch 8 --epochs 3 ";
  go(words + "--eval-every 2 --out two");
  EXPECT_EQ(evaluated("two"), "-ee");
  const Finished never = go(words + "--eval-every 0 --out never");
  EXPECT_EQ(evaluated("never"), "---");
  EXPECT_FALSE(has(never.output, " eval ")) << never.output;
  EXPECT_FALSE(has(never.output, "/best/")) << never.output;
  EXPECT_EQ(metric(in("never"), "epoch", "eval_seconds"), Strings(3));
  EXPECT_TRUE(has(go(words + "--eval-every 0 --report --out asked").output, "macro avg"));
  EXPECT_EQ(evaluated("asked"), "--e");
  // The same weights: an evaluation changes nothing.
  expect_same_state("never", "two");

  const std::string folders = on_vit + "--data three --batch 6 --epochs 2 ";
  const Finished all = go(folders + "--val-fraction 0 --out all");
  EXPECT_TRUE(has(all.output, "\ndata: three, 18 train, 0 val")) << all.output;
  EXPECT_EQ(evaluated("all"), "--");
  // Data that has its own validation images.
  const Finished own = go(words + "--val-fraction 0 --out own");
  EXPECT_TRUE(has(own.output, "\n--val-fraction 0: 10 images for validation aren't used\n"));
  EXPECT_EQ(evaluated("own"), "---");
  go(folders + "--val-fraction 0 --val three --out named");
  EXPECT_EQ(evaluated("named"), "ee");
  const auto refused = [&](const std::string& more) { return run(folders + more).errors; };
  EXPECT_EQ(refused("--val-fraction 0 --report"),
            "--report has no effect without images for validation\n");
  EXPECT_EQ(refused("--eval-every 0 --best-by loss"),
            "--best-by has no effect without an evaluation\n");
}

// The rows, with exchange, waiting, evaluation and saving, add up to the time that the user waits.
TEST_F(ProgramRuns, TellsWhereTimeWent) {
  int runs = 0;
  const auto compare = [&](const std::string& processes) {
    const double before = seconds_now();
    go(on_vit + "--data cifar --batch 4 --plan");
    const double start = seconds_now(), plan = start - before;
    const Finished end =
        go("-n " + processes + " " + on_vit + "--data cifar --batch 4 --epochs 2 --profile --out " +
           "profiled" + std::to_string(++runs));
    const double wall = seconds_now() - start;
    std::istringstream lines(end.output);
    double sum = 0, total = 0;
    std::set<std::string> names;
    for (std::string line; std::getline(lines, line);) {
      std::smatch row;
      if (!std::regex_match(line, row, std::regex(R"(([a-z -]+?) +([0-9.]+) s +[0-9.]+%)")))
        continue;
      (row[1] == "total" ? total : sum) += std::stod(row[2]);
      names.insert(row[1]);
    }
    EXPECT_NEAR(sum, total, .01);
    EXPECT_LE(total, wall);
    for (const char* name :
         {"attention", "optimizer", "waiting for data", "evaluation", "saving", "start"})
      EXPECT_TRUE(names.contains(name)) << name << "\n" << end.output;
    EXPECT_EQ(names.contains("exposed communication"), processes == "2");
    // The profile leaves out the program's start and end, which a --plan run has, too.
    return wall - total < .02 * wall + .5 + 5 * plan;
  };
  // Again if other processes have slowed down one of them.
  for (const char* processes : {"1", "2"}) {
    bool near = false;
    for (int tries = 0; !near && tries < 10; ++tries) near = compare(processes);
    EXPECT_TRUE(near) << processes;
  }
}

// With fewer threads than OMP_NUM_THREADS requests, a run is slower, but has the same results.
TEST_F(ProgramRuns, AThreadLimitChangesNoResult) {
  const std::string words = on_cifar + "--batch 8 --steps 3 --out ";
  go(words + "one", {.threads = 1});
  const Finished end =
      go(words + "limited", {.threads = 2, .environment = {{"OMP_THREAD_LIMIT", "1"}}});
  EXPECT_TRUE(has(end.output, "cpu, 1 thread,"));
  expect_same_state("one", "limited");
}

TEST_F(ProgramRuns, PlansALargeModelWithoutAllocatingIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer reserves more addresses than any limit";
#endif
  const Finished end =
      go("vit_large --data synthetic --batch 8 --plan", {.address_space = size_t{3500} << 20});
  const size_t at = end.output.find("\npeak ");
  ASSERT_NE(at, std::string::npos) << end.output;
  EXPECT_GT(std::stod(end.output.substr(at + 6)), 6e9);
}

// The average's accuracy is logged next to that of the weights; other runs can start from its file.
TEST_F(ProgramRuns, TheAverageOfTheWeights) {
  make_cifar(in("more"), 44, 200);
  const std::string words = on_vit + "--data more --batch 8 --ema .5 ";
  const Finished end = go(words + "--epochs 2 --lr .01 --out a");
  EXPECT_TRUE(has(end.output, ", moving average 0.5\n")) << end.output;
  EXPECT_TRUE(has(end.output, "  ema "));
  EXPECT_TRUE(has(end.output, "weights: a/last/ema.safetensors, best: a/best/ema.safetensors\n"));
  EXPECT_TRUE(has(go(words + "--plan").output, "\nmoving average of weights "));
  const auto loss = metric(in("a"), "epoch", "ema_loss");
  ASSERT_EQ(loss.size(), 2u);
  EXPECT_NE(loss, metric(in("a"), "epoch", "val_loss"));
  // The average's accuracy decides which checkpoint is best/.
  const auto best = [&](const char* key) {
    const auto top1 = metric(in("a"), "epoch", key);
    return std::max(std::stod(top1[0]), std::stod(top1[1]));
  };
  ASSERT_NE(best("ema_top1"), best("val_top1"));
  EXPECT_EQ(load_checkpoint(in("a")).best_top1, best("ema_top1"));
  // Weights that don't change are their own average.
  go(words + "--steps 1 --lr 0 --weights a/last/ema.safetensors --out b");
  EXPECT_EQ(last_metric(in("b"), "epoch", "val_loss"), loss[1]);
  EXPECT_EQ(last_metric(in("b"), "epoch", "ema_loss"), loss[1]);
  EXPECT_TRUE(contents(in("b/last/weights.safetensors")) == contents(in("a/last/ema.safetensors")));
}

// best/ has the lowest loss, even if the run is resumed; with --ema, the average's lowest loss.
TEST_F(ProgramRuns, TheBestByLoss) {
  for (const std::string average : {"", "--ema .9 "}) {
    std::filesystem::remove_all(in("a"));
    go(on_cifar +
       "--batch 8 --epochs 6 --lr .003 --best-by loss --left-over drop --steps 17 --out a " +
       average);
    go("--resume a --steps 30");
    const auto loss = metric(in("a"), "epoch", average.empty() ? "val_loss" : "ema_loss");
    const auto top1 = metric(in("a"), "epoch", average.empty() ? "val_top1" : "ema_top1");
    const auto steps = metric(in("a"), "epoch", "step");
    ASSERT_EQ(loss.size(), 7u);
    const auto number = [](const std::string& a, const std::string& b) {
      return std::stod(a) < std::stod(b);
    };
    const auto lowest = std::ranges::min_element(loss, number) - loss.begin();
    const auto highest = std::ranges::max_element(top1, number) - top1.begin();
    EXPECT_NE(lowest, highest) << "they agree, which shows nothing";
    EXPECT_EQ(std::to_string(load_checkpoint(in("a")).best_step), steps[size_t(lowest)]);
  }
}

TEST_F(ProgramRuns, ResumedRunsKeepTheirOptions) {
  go("-n 2 " + on_cifar + "--batch 8 --epochs 1 --out a");
  const Finished longer = go("--resume a --epochs 2 --log-every 2 --save-every 3steps --keep 2");
  EXPECT_TRUE(has(longer.output, "2 processes, local batch 4"));
  EXPECT_TRUE(has(longer.output, "\nthe cosine now ends with epoch 2, not 1: lr continues at "));
  EXPECT_EQ(metric(in("a"), "step", "step"), (Strings{"1", "2", "3", "4", "5", "6", "8", "10"}));
  // A finished run needs no further step.
  const Finished none = go("--resume a");
  EXPECT_EQ(last_metric(in("a"), "step", "step"), "10");
  EXPECT_TRUE(has(none.output, "a/last/weights.safetensors"));
  EXPECT_TRUE(has(none.output, "\nnothing left to do: 10 steps done\n"));
  EXPECT_FALSE(has(longer.output, "nothing left"));
}

// 44 images, 4 of which each epoch leaves out.
TEST_F(ProgramRuns, ResumedRunsKeepTheirOrderOfImages) {
  const std::string words = on_cifar + "--batch 8 --epochs 3 ";
  go(words + "--out next");
  go(words + "--left-over drop --out drop");
  EXPECT_FALSE(contents(in("next/last/weights.safetensors")) ==
               contents(in("drop/last/weights.safetensors")));
  for (const std::string how : {"next", "drop"}) {
    go(words + "--steps 7 --out part " + (how == "drop" ? "--left-over drop" : ""));
    std::string config = contents(in("part/config.json"));
    const std::string line = "\"left_over\": \"" + how + "\"";
    const size_t at = config.find(line);
    ASSERT_NE(at, config.npos);
    // A run that began before there was the option has none.
    if (how == "drop")
      write_text(in("part/config.json"), config.replace(at - 2, line.size() + 3, ""));
    go("--resume part --steps 15");
    expect_same_state("part", how);
    std::filesystem::remove_all(in("part"));
  }
}

TEST_F(ProgramRuns, StartsFromWeightsOfAnotherSizeAndOtherClasses) {
  make_class_folders(in("three"), 3, 6);
  go(on_cifar + "--batch 8 --steps 2 --out a");
  const Finished other =
      go("vit_tiny --image-size 48 --patch-size 16 --data three --batch 4 "
         "--steps 2 --out b --weights a/last/weights.safetensors");
  EXPECT_TRUE(has(other.output, "new head (10 classes there, 3 here)"));
  const std::string advice =
      "\nfew photos: a pretrained model learns more from them: --weights NAME ";
  EXPECT_FALSE(has(other.output, advice));
  EXPECT_TRUE(has(go(on_vit + "--data three --steps 1 --out d").output,
                  advice + "(./launcher weights list vit_tiny)\n"));
  EXPECT_TRUE(has(other.output, "position embedding resized from 2x2 to 3x3 patches"));
  // Weights that fit load unchanged, and stay so at a learning rate of 0.
  const Finished same = go(on_cifar +
                           "--batch 8 --steps 1 --lr 0 --out c --weights "
                           "a/last/weights.safetensors");
  EXPECT_FALSE(has(same.output, "new head"));
  EXPECT_TRUE(contents(in("a/last/weights.safetensors")) ==
              contents(in("c/last/weights.safetensors")));
}

}  // namespace
}  // namespace bv::test
