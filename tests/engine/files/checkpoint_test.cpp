#include "engine/files/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "base/files/checksum.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace {

using namespace bv;
using namespace bv::test;
namespace fs = std::filesystem;

void save_checkpoint(const std::string& run, const Checkpoint& c, bool best, int keep) {
  bv::save_checkpoint(run, c, tensors_of(c), best, keep);
}

// A checkpoint in which the values of every tensor are its step.
Checkpoint example(int64_t step, size_t size = 100) {
  const std::vector<float> data(size, float(step));
  Checkpoint c{.model = "vit_tiny", .step = step, .epoch = step / 10, .batch = step % 10};
  c.weights.metadata = {{"format", "pt"}};
  c.weights.tensors["w"] = {.shape = {int64_t(size)}, .data = data};
  c.optimizer.tensors["m.w"] = {.shape = {int64_t(size)}, .data = data};
  c.optimizer.tensors["v.w"] = {.shape = {int64_t(size)}, .data = data};
  return c;
}

std::string target(const std::string& link) { return fs::read_symlink(link).string(); }

// The reason why a run folder doesn't load, with DIR in place of the folder's name.
std::string refusal(const std::string& run) {
  std::string what = error_of([&] { load_checkpoint(run); });
  for (size_t at; (at = what.find(run)) != std::string::npos;) what.replace(at, run.size(), "DIR");
  return what;
}

std::string save_failure(const std::string& run, const Checkpoint& c) {
  return error_of<RunError>([&] { save_checkpoint(run, c, false, 1); });
}

TEST(Checkpoint, ComesBackAsItWasSaved) {
  const TemporaryFolder run;
  Checkpoint c = example(123456789012);
  c.epoch = 3, c.batch = 17;
  c.update = {.count = 99, .loss_scale = 65536, .good_steps = 5, .skipped = 2};
  c.best_top1 = 1.0 / 3, c.best_step = 40, c.loss_sum = HUGE_VAL, c.loss_count = 0.1;
  c.top1_sum = 0.05;
  c.data_fingerprint = UINT64_MAX, c.data_contents = UINT64_MAX;
  c.precision = {.epoch = 4, .sixteen_bits = false, .reason = "a\"b", .renewed = 2, .lr = .1};
  c.precision->losses[1] = HUGE_VAL;
  c.options = {{"lr", {"0.1"}}, {"mean", {"1", "2", "3"}}, {"out", {"a\"b\n"}}, {"val", {}}};
  save_checkpoint(run.path(), c, true, 1);
  const Checkpoint back = load_checkpoint(run.path());
  const auto numbers = [](const Checkpoint& x) {
    return std::tuple(x.model, x.step, x.epoch, x.batch, x.update.count, x.update.loss_scale,
                      x.update.good_steps, x.update.skipped, x.best_top1, x.best_step, x.loss_sum,
                      x.loss_count, x.top1_sum, x.data_fingerprint, x.data_contents, x.options);
  };
  EXPECT_EQ(numbers(back), numbers(c));
  const PrecisionState p = back.precision.value();
  EXPECT_EQ(std::tuple(p.epoch, p.sixteen_bits, p.reason, p.renewed, p.lr, p.losses[1]),
            std::tuple(4, false, "a\"b", 2, .1, HUGE_VAL));
  EXPECT_TRUE(std::isnan(p.losses[0]));
  EXPECT_EQ(back.weights.metadata, c.weights.metadata);
  EXPECT_EQ(back.weights.tensors.at("w").data, c.weights.tensors.at("w").data);
  ASSERT_EQ(back.optimizer.tensors.size(), 2u);
  EXPECT_EQ(back.optimizer.tensors.at("v.w").data, c.optimizer.tensors.at("v.w").data);
  EXPECT_EQ(names_in(run / "last"),
            (std::set<std::string>{"weights.safetensors", "state.safetensors", "state.json"}));
}

TEST(Checkpoint, OfAVersionThatKeptLessIsRead) {
  Checkpoint c = example(3);
  c.data_fingerprint = 5, c.data_contents = 7, c.loss_count = 9, c.top1_sum = 4;
  std::string text = write_checkpoint_state(c, {});
  EXPECT_EQ(parse_checkpoint_state(text, "x").progress.data_contents, 7u);
  text = replaced(text, ",\n \"data_contents\": 7", "");
  text = replaced(text, ",\n \"top1_sum\": 4", "");
  text = replaced(text, ",\n \"options\": {}", "");
  text.resize(text.find(",\n \"crc32c\""));
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", crc32c(std::as_bytes(std::span(text))));
  text += ",\n \"crc32c\": \"" + std::string(crc) + "\"\n}\n";
  EXPECT_EQ(parse_checkpoint_state(text, "x").progress.data_contents, 0u);
  EXPECT_EQ(parse_checkpoint_state(text, "x").progress.data_fingerprint, 5u);
  EXPECT_TRUE(std::isnan(parse_checkpoint_state(text, "x").progress.top1_sum));
}

TEST(Checkpoint, OptimizerWithoutStateHasNoFile) {
  const TemporaryFolder run;
  Checkpoint c = example(1);
  c.optimizer = {};
  save_checkpoint(run.path(), c, false, 1);
  EXPECT_EQ(names_in(run / "last"), (std::set<std::string>{"weights.safetensors", "state.json"}));
  EXPECT_TRUE(load_checkpoint(run.path()).optimizer.tensors.empty());
}

TEST(Checkpoint, TheAverageOfTheWeightsHasAFileOfItsOwn) {
  const TemporaryFolder run;
  Checkpoint c = example(2);
  c.ema = c.weights;
  c.ema.tensors.at("w").data[0] = 9;
  save_checkpoint(run.path(), c, false, 1);
  EXPECT_TRUE(names_in(run / "last").contains("ema.safetensors"));
  const Checkpoint back = load_checkpoint(run.path());
  EXPECT_EQ(back.ema.metadata, c.weights.metadata);
  EXPECT_EQ(back.ema.tensors.at("w").data, c.ema.tensors.at("w").data);
  EXPECT_EQ(back.weights.tensors.at("w").data, c.weights.tensors.at("w").data);
  write_text(run / "last/ema.safetensors", "trun");
  EXPECT_TRUE(has(refusal(run.path()), "ema.safetensors: truncated: 4 of "));
}

TEST(Checkpoint, LinksNameTheNewestAndTheBest) {
  const TemporaryFolder run;
  for (int step = 1; step <= 5; ++step) save_checkpoint(run.path(), example(step), step == 2, 2);
  EXPECT_EQ(target(run / "last"), "step-00000005");
  EXPECT_EQ(target(run / "best"), "step-00000002");
  EXPECT_EQ(names_in(run.path()), (std::set<std::string>{"last", "best", "step-00000002",
                                                         "step-00000004", "step-00000005"}));
  EXPECT_EQ(load_checkpoint(run.path()).step, 5);
}

TEST(Checkpoint, AnEvaluationGivesTheSavedStepItsOutcome) {
  const TemporaryFolder run;
  Checkpoint c = example(20);
  c.settled = false, c.loss_sum = 3, c.loss_count = 2, c.epoch = 2, c.batch = 0;
  save_checkpoint(run.path(), example(10), true, 1);
  save_checkpoint(run.path(), c, false, 1);
  EXPECT_FALSE(load_checkpoint(run.path()).settled);
  const std::string weights = contents(run / "last/weights.safetensors");
  c.settled = true, c.loss_sum = c.loss_count = 0, c.best_top1 = .5, c.best_step = 20;
  settle_checkpoint(run.path(), c, true, 1);
  EXPECT_EQ(names_in(run.path()), (std::set<std::string>{"last", "best", "step-00000020"}));
  EXPECT_EQ(target(run / "best"), "step-00000020");
  EXPECT_EQ(contents(run / "last/weights.safetensors"), weights);
  // The state equals that of a checkpoint saved after the evaluation.
  const std::string state = contents(run / "last/state.json");
  fs::remove_all(run.path());
  save_checkpoint(run.path(), c, true, 1);
  EXPECT_EQ(contents(run / "last/state.json"), state);
}

TEST(Checkpoint, AnEvaluationOfAnotherStepChangesNothing) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(1), false, 1);
  const std::string state = contents(run / "last/state.json");
  EXPECT_TRUE(is_last_checkpoint(run.path(), 1));
  EXPECT_FALSE(is_last_checkpoint(run.path(), 2));
  settle_checkpoint(run.path(), example(2), true, 1);
  EXPECT_EQ(contents(run / "last/state.json"), state);
  EXPECT_FALSE(fs::exists(run / "best"));
}

TEST(Checkpoint, AKillBeforeTheNewStateLeavesAStepToEvaluate) {
  const TemporaryFolder run;
  Checkpoint c = example(1);
  c.settled = false;
  save_checkpoint(run.path(), c, false, 1);
  fs::create_symlink("step-00000001", run / "best");  // the first step of settling
  EXPECT_FALSE(load_checkpoint(run.path()).settled);
  settle_checkpoint(run.path(), example(1), true, 1);
  EXPECT_TRUE(load_checkpoint(run.path()).settled);
}

TEST(Checkpoint, SameStepTwiceNeverReplacesAFolderInUse) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(7, 10), true, 1);
  save_checkpoint(run.path(), example(7, 20), false, 1);
  EXPECT_EQ(target(run / "last"), "step-00000007-2");
  EXPECT_EQ(target(run / "best"), "step-00000007");
  EXPECT_EQ(load_checkpoint(run.path()).weights.tensors.at("w").data.size(), 20u);
  save_checkpoint(run.path(), example(7, 30), true, 1);
  EXPECT_EQ(target(run / "last"), "step-00000007-3");
  EXPECT_EQ(names_in(run.path()), (std::set<std::string>{"last", "best", "step-00000007-3"}));
}

TEST(Checkpoint, LeftoversOfAKilledSaveGo) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(1), false, 1);
  fs::create_directory(run / ".saving-step");
  write_text(run / ".saving-step/weights.safetensors.partial", "x");
  fs::create_symlink("step-00000002", run / ".saving-link");
  write_text(run / ".saving-removed-step-00000000/weights.safetensors", "x");  // of a removed step
  fs::create_directory(run / "step-00000002");  // placed, not yet linked
  write_text(run / "step-00000002/stale", "x");
  save_checkpoint(run.path(), example(2), false, 1);
  EXPECT_EQ(names_in(run.path()), (std::set<std::string>{"last", "step-00000002"}));
  EXPECT_EQ(load_checkpoint(run.path()).step, 2);
  EXPECT_FALSE(fs::exists(run / "last/stale"));
}

TEST(Checkpoint, FolderInTheLinksPlaceIsReplaced) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(1), false, 1);
  fs::remove(run / "last");
  fs::rename(run / "step-00000001", run / "last");  // as after cp -rL
  EXPECT_EQ(load_checkpoint(run.path()).step, 1);
  save_checkpoint(run.path(), example(2), false, 1);
  EXPECT_EQ(target(run / "last"), "step-00000002");
  EXPECT_EQ(names_in(run.path()), (std::set<std::string>{"last", "step-00000002"}));
}

TEST(Checkpoint, OtherFilesAreLeftAlone) {
  const TemporaryFolder run;
  for (const char* name : {"config.json", "step-1", "step-00000001x", "stepping", "notes"})
    write_text(run / name, "mine");
  for (int step = 1; step <= 3; ++step) save_checkpoint(run.path(), example(step), false, 1);
  EXPECT_EQ(names_in(run.path()),
            (std::set<std::string>{"last", "step-00000003", "config.json", "step-1",
                                   "step-00000001x", "stepping", "notes"}));
}

TEST(Checkpoint, NoCheckpointSaysWhatIsThere) {
  const TemporaryFolder run;
  EXPECT_EQ(refusal(run / "none"), "DIR: no such folder");
  EXPECT_EQ(refusal(run.path()), "DIR: no checkpoint here (DIR/last is missing)");
  fs::create_symlink("step-00000001", run / "last");
  EXPECT_EQ(refusal(run.path()),
            "DIR/last: names DIR/step-00000001, which doesn't exist; there is no other intact "
            "checkpoint: start anew, with another --out");
  save_checkpoint(run.path(), example(2), false, 1);
  fs::remove(run / "last"), fs::create_symlink("step-00000001", run / "last");
  EXPECT_EQ(refusal(run.path()),
            "DIR/last: names DIR/step-00000001, which doesn't exist; DIR/step-00000002 is intact: "
            "`ln -sfn step-00000002 DIR/last`, then --resume, continues from it");
  fs::remove_all(run / "step-00000002");
  save_checkpoint(run.path(), example(1), false, 1);
  EXPECT_EQ(refusal(run / "last"), "DIR: a single checkpoint; name the run folder above it");
  fs::remove(run / "last/state.safetensors");
  EXPECT_EQ(refusal(run.path()), "DIR/step-00000001/state.safetensors: no such file");
}

TEST(Checkpoint, ADamagedOneNamesTheNewestThatIsIntact) {
  const TemporaryFolder run;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(run.path(), example(step), false, 4);
  const auto tear = [&](const std::string& name) {
    write_text(run / (name + "/weights.safetensors"), "x");
  };
  tear("step-00000004"), tear("step-00000003");
  const std::string torn = "/weights.safetensors: truncated: 1 of ";
  std::string what = refusal(run.path());
  EXPECT_TRUE(what.starts_with("DIR/step-00000004" + torn)) << what;
  EXPECT_TRUE(
      what.ends_with(" bytes; DIR/step-00000002 is intact: `ln -sfn step-00000002 DIR/last`"
                     ", then --resume, continues from it"))
      << what;
  fs::remove(run / "last");
  fs::rename(run / "step-00000004", run / "last");  // as after cp -rL
  EXPECT_TRUE(has(refusal(run.path()), "`rm -r DIR/last; ln -sfn step-00000002 DIR/last`"));
  fs::remove_all(run / "last");
  fs::create_symlink("step-00000002", run / "last");
  EXPECT_EQ(load_checkpoint(run.path()).step, 2);
  tear("step-00000001");
  write_text(run / "last/state.safetensors", "x");
  EXPECT_TRUE(
      refusal(run.path())
          .ends_with(" bytes; there is no other intact checkpoint: start a new run from --weights "
                     "DIR/step-00000002/weights.safetensors, with another --out"));
  tear("step-00000002");
  EXPECT_TRUE(
      refusal(run.path())
          .ends_with(
              " bytes; there is no other intact checkpoint: start anew, with another --out"));
}

TEST(Checkpoint, NewerForeignAndTornFilesAreRefused) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(1), false, 1);
  const std::string path = run / "last/state.json", good = contents(path);
  const std::string name = "DIR/step-00000001/state.json: ";
  write_text(path, replaced(good, "\"version\": 1", "\"version\": 2"));
  EXPECT_EQ(refusal(run.path()), name + "made by a newer barevision: format 2, this one reads 1");
  for (const char* foreign : {"{}", "{\"format\": \"another\"}", "{\"epoch\": [1, {}]}"}) {
    write_text(path, foreign);
    EXPECT_EQ(refusal(run.path()), name + "not a barevision checkpoint");
  }
  for (const std::string& torn :
       {std::string(), std::string(100000, '['), good.substr(0, good.size() - 3)}) {
    write_text(path, torn);
    const std::string what = refusal(run.path());
    EXPECT_EQ(what.find(name), 0u);
    EXPECT_TRUE(has(what, "; truncated, or not a barevision checkpoint"));
  }
  write_text(path, std::string(2 << 20, ' '));
  EXPECT_EQ(refusal(run.path()), name + "larger than 1 MiB");
  write_text(path, replaced(good, "\"step\": 1", "\"step\": 2"));
  EXPECT_EQ(refusal(run.path()), name + "damaged: its checksum doesn't match its contents");
  write_text(path, good);
  EXPECT_EQ(refusal(run.path()), "no error");
}

TEST(Checkpoint, ProgressIsThatOfARunWithTheseData) {
  const RunLength run{.batches = 10, .accumulate = 4, .epochs = 100};  // 3 updates per epoch
  const auto refusal = [&](int64_t step, int64_t epoch, int64_t batch, auto change) {
    Checkpoint c{.step = step, .epoch = epoch, .batch = batch};
    change(c);
    return error_of([&] { require_reachable(c, run, "x"); });
  };
  const auto place = [&](int64_t step, int64_t epoch, int64_t batch) {
    return refusal(step, epoch, batch, [](Checkpoint&) {});
  };
  for (int64_t step = 0; step <= 300; ++step)
    EXPECT_EQ(place(step, step / 3, step % 3 * 4), "no error") << step;
  EXPECT_EQ(place(8, 2, 4),
            "x: damaged: epoch 2, batch 4 after 8 steps can't be in a run of 10 batches per epoch, "
            "4 per update");
  for (const auto& [step, epoch, batch] : {std::tuple{7l, 2l, 8l},
                                           {7l, 2l, 5l},
                                           {8l, 2l, 10l},
                                           {303l, 101l, 0l},
                                           {INT64_MAX / 3 * 3, INT64_MAX / 3, 0l},
                                           {7l, INT64_MAX, 4l},
                                           {7l, 2l, INT64_MAX}})
    EXPECT_TRUE(has(place(step, epoch, batch), "can't be")) << step;
  const auto number = [&](auto change) { return refusal(7, 2, 4, change); };
  EXPECT_TRUE(has(number([](auto& c) { c.update.count = 8; }), "update_count 8"));
  EXPECT_TRUE(has(number([](auto& c) { c.update.good_steps = 8; }), "good_steps 8"));
  EXPECT_TRUE(has(number([](auto& c) { c.update.skipped = 8; }), "skipped 8"));
  EXPECT_TRUE(has(number([](auto& c) { c.update.loss_scale = NAN; }), "loss_scale nan"));
  EXPECT_TRUE(has(number([](auto& c) { c.best_top1 = NAN; }), "best_top1 nan"));
  EXPECT_TRUE(has(number([](auto& c) { c.best_step = 8; }), "best_step 8"));
  EXPECT_TRUE(has(number([](auto& c) { c.loss_count = HUGE_VAL; }), "loss_count inf"));
  EXPECT_TRUE(has(number([](auto& c) { c.top1_sum = c.loss_count + 1; }), "top1_sum "));
  EXPECT_EQ(number([](auto& c) { c.top1_sum = NAN; }), "no error");
  EXPECT_EQ(number([](auto& c) { c.loss_sum = HUGE_VAL; }), "no error");  // after a skipped step
}

std::string flipped(std::string bytes, size_t at, size_t bit) {
  bytes[at] = char(bytes[at] ^ (1 << bit));
  return bytes;
}

TEST(Checkpoint, EveryFlippedBitIsNoticed) {
  const TemporaryFolder run;
  save_checkpoint(run.path(), example(1, 4), false, 1);
  for (const char* file : {"last/weights.safetensors", "last/state.safetensors"}) {
    const std::string good = contents(run / file);
    for (size_t i = 0; i < good.size(); ++i) {
      write_text(run / file, flipped(good, i, i % 8));
      EXPECT_TRUE(has(refusal(run.path()), "damaged: its checksum")) << i;
    }
    write_text(run / file, good.substr(0, 9));
    EXPECT_TRUE(has(refusal(run.path()), "truncated: 9 of "));
    write_text(run / file, good);
  }
  const std::string good = contents(run / "last/state.json");
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_THROW(parse_checkpoint_state(flipped(good, i, i % 7), "state.json"), UserError) << i;
  }
}

TEST(Checkpoint, FullDiskLeavesThePreviousCheckpoint) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk", "1m");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs can't be mounted here";
  const std::string run = folder / "disk/run";
  EXPECT_EQ(save_failure(run, example(1, 100000)),
            "disk full while saving step 1 to " + run + "; there is no earlier checkpoint");
  EXPECT_TRUE(names_in(run).empty());
  EXPECT_EQ(save_failure(run, example(1, 50000)), "no error");
  EXPECT_EQ(save_failure(run, example(2, 50000)), "disk full while saving step 2 to " + run +
                                                      "; the previous checkpoint " + run +
                                                      "/last (step 1) is intact");
  EXPECT_EQ(names_in(run), (std::set<std::string>{"last", "step-00000001"}));
  EXPECT_EQ(load_checkpoint(run).step, 1);
  EXPECT_EQ(save_failure(run, example(2, 10000)), "no error");  // room again: saving works
  EXPECT_EQ(load_checkpoint(run).step, 2);
}

TEST(Checkpoint, FullDiskAtAnyPointLeavesThePreviousCheckpoint) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk", "64k,nr_inodes=15");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs can't be mounted here";
  const std::string run = folder / "disk/run";
  ASSERT_EQ(save_failure(run, example(1)), "no error");
  int failures = 0;
  for (int i = 0; i < 12; ++i) {  // fewer and fewer files can be made
    const std::string failure = save_failure(run, example(2 + i));
    failures += failure != "no error";
    EXPECT_TRUE(failure == "no error" || has(failure, "is intact")) << failure;
    const int64_t step = load_checkpoint(run).step;
    EXPECT_EQ(step == 2 + i, failure == "no error") << step;
    EXPECT_EQ(names_in(run).size(), 2u);
    std::ofstream(folder / "disk/fill" + std::to_string(i));
  }
  EXPECT_GT(failures, 3);
}

TEST(Checkpoint, FolderThatCanNotBeMadeIsARunError) {
  const TemporaryFolder folder;
  write_text(folder / "file", "x");
  EXPECT_TRUE(has(save_failure(folder / "file/run", example(1)), "can't make"));
}

// A child saves until it is killed at a random time; then `last` loads and is consistent.
TEST(Checkpoint, KilledSaverAlwaysLeavesAWholeCheckpoint) {
  const TemporaryFolder run;
  const auto begin = std::chrono::steady_clock::now();
  save_checkpoint(run.path(), example(1, 20000), true, 1);
  const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - begin);
  std::mt19937 random(1);
  int64_t step = 1;
  std::set<std::string> seen;  // leftovers of the kills
  for (int kill_number = 0; kill_number < 60; ++kill_number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int64_t next = step + 1;; ++next)
          save_checkpoint(run.path(), example(next, 20000), next % 2 == 0, 2);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
      }
      _exit(1);
    }
    const auto limit = uint32_t(std::clamp<int64_t>(3 * one_save.count(), 1000, 50000));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % limit));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the saver ended by itself";
    for (const std::string& name : names_in(run.path())) seen.insert(name);
    const Checkpoint c = load_checkpoint(run.path());
    EXPECT_GE(c.step, step);
    step = c.step;
    for (const TensorFile* file : {&c.weights, &c.optimizer})
      for (const auto& [name, tensor] : file->tensors)
        EXPECT_EQ(tensor.data, std::vector<float>(20000, float(step))) << name;
  }
  EXPECT_TRUE(seen.count(".saving-step")) << "no kill hit a save";
  save_checkpoint(run.path(), example(step + 1), true, 1);
  const auto left = names_in(run.path());
  for (const std::string& name : left) EXPECT_FALSE(name.starts_with(".")) << name;
  EXPECT_LE(left.size(), 4u);
}

}  // namespace
