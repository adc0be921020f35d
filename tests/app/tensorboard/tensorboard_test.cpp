// TensorBoard's event files: contents, names, a full disk.
#include "app/hooks/evaluation_pictures.h"
#include "app/tensorboard/event_file.h"

#if BAREVISION_TENSORBOARD
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "app/tensorboard/event.pb.h"
#include "data/dataset.h"
#include "data/decode/decode_image.h"
#include "data/records/tfrecord.h"
#include "engine/files/event_file_names.h"
#include "engine/run/run.h"
#include "tests/engine/run/train_here.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

using tensorboard::Event;

std::vector<std::string> paths_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& path : event_files(folder)) paths.push_back(path);
  std::ranges::sort(paths);
  return paths;
}

// The events of a whole file.
std::vector<Event> events_of(const std::string& path) {
  const std::string file = contents(path);
  std::vector<Event> events;
  for (std::string_view rest = file; !rest.empty();) {
    const auto payload = first_record(rest);
    if (!payload || !events.emplace_back().ParseFromString(std::string(*payload))) {
      ADD_FAILURE() << path << ": damaged after " << events.size() << " events";
      break;
    }
    rest.remove_prefix(payload->size() + record_overhead);
  }
  return events;
}

// The values that TensorBoard shows for all files of a run: a START event hides the values logged
// before it for its step and later steps.
std::map<std::string, std::map<int64_t, std::vector<float>>> shown(const std::string& run) {
  std::map<std::string, std::map<int64_t, std::vector<float>>> curves;
  for (const std::string& path : paths_in(run))
    for (const Event& event : events_of(path)) {
      if (event.has_session_log())
        for (auto& [tag, curve] : curves) curve.erase(curve.lower_bound(event.step()), curve.end());
      for (const auto& value : event.summary().value())
        curves[value.tag()][event.step()].push_back(value.simple_value());
    }
  return curves;
}

TEST(TensorBoard, WhatAFileHolds) {
  TemporaryFolder folder;
  EventFile file(folder.path(), 8);
  file.scalars(8, std::array{Scalar{"Loss/train", 2.5}, Scalar{"LR/train", 1e-3}});
  file.text(8, "options", "a | b");
  const std::string png = "not looked at";
  file.image(9, "Images/train", std::as_bytes(std::span(png)), 2, 3);
  ASSERT_EQ(paths_in(folder.path()).size(), 1u);
  EXPECT_EQ(contents(paths_in(folder.path())[0]), "");
  file.flush();
  const auto events = events_of(paths_in(folder.path())[0]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1.7e9);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 8);
  ASSERT_EQ(events[2].summary().value_size(), 2);
  EXPECT_EQ(events[2].step(), 8);
  EXPECT_EQ(events[2].summary().value(1).tag(), "LR/train");
  EXPECT_EQ(events[2].summary().value(1).simple_value(), 1e-3f);
  const auto& text = events[3].summary().value(0);
  EXPECT_EQ(text.metadata().plugin_data().plugin_name(), "text");
  EXPECT_EQ(text.tensor().string_val(0), "a | b");
  const auto& image = events[4].summary().value(0).image();
  EXPECT_EQ(image.height(), 2);
  EXPECT_EQ(image.width(), 3);
  EXPECT_EQ(image.encoded_image_string(), png);
}

// Files are ordered by name, even if the clock goes back.
TEST(TensorBoard, ALaterFileIsBehindAnEarlierOne) {
  TemporaryFolder folder;
  write_text(folder / "events.out.tfevents.9876543210.elsewhere.1.0", "");
  for (int i = 0; i < 2; ++i) EventFile(folder.path(), 1).flush();
  const auto paths = paths_in(folder.path());
  ASSERT_EQ(paths.size(), 3u);
  const std::string own = "." + name_of_machine() + "." + std::to_string(getpid()) + ".0";
  EXPECT_EQ(paths[1], folder / "events.out.tfevents.9876543211" + own);
  EXPECT_EQ(paths[2], folder / "events.out.tfevents.9876543212" + own);
}

class TensorBoardRuns : public ShallowProgramTest {
 protected:
  TensorBoardRuns() { make_cifar(in("cifar")); }
  // Epochs of five updates.
  std::string words(const std::string& more) const {
    return on_vit + "--data cifar --batch 8 --out run " + more;
  }
  // Expects a curve to have the values of a member of metrics.jsonl, divided by `unit`.
  void expect_curve(const std::string& tag, const std::string& kind, const std::string& member,
                    float unit = 1) {
    const auto curves = shown(in("run"));
    ASSERT_TRUE(curves.contains(tag)) << tag;
    std::vector<std::string> steps;
    std::vector<float> values, expected;
    for (const auto& [step, all] : curves.at(tag)) {
      EXPECT_EQ(all.size(), 1u) << tag << " has step " << step << " twice";
      steps.push_back(std::to_string(step));
      values.push_back(all[0]);
    }
    for (const std::string& text : metric(in("run"), kind, member))
      expected.push_back(std::stof(text) / unit);
    EXPECT_EQ(steps, metric(in("run"), kind, "step")) << tag;
    ASSERT_EQ(values.size(), expected.size()) << tag;
    for (size_t i = 0; i < values.size(); ++i)  // metrics.jsonl is rounded once more
      EXPECT_FLOAT_EQ(values[i], expected[i]) << tag;
  }
  void expect_curves() {
    for (const auto& [tag, member] : {std::pair{"Loss/train", "loss"},
                                      {"Accuracy/train", "top1"},
                                      {"LR/train", "lr"},
                                      {"GradNorm/train", "grad_norm"},
                                      {"Throughput/train", "images_per_second"},
                                      {"Seconds/data", "data_seconds"},
                                      {"Seconds/step", "step_seconds"}})
      expect_curve(tag, "step", member);
    for (const auto& [tag, member] : {std::pair{"Loss/train_epoch", "train_loss"},
                                      {"Accuracy/train_epoch", "train_top1"},
                                      {"Loss/val", "val_loss"},
                                      {"Accuracy/val", "val_top1"},
                                      {"Accuracy/val_top5", "val_top5"},
                                      {"Seconds/epoch", "seconds"},
                                      {"Seconds/val", "eval_seconds"},
                                      {"Seconds/save", "save_seconds"}})
      expect_curve(tag, "epoch", member);
    for (const auto& [tag, member] : {std::pair{"Memory/planned_MiB", "peak_memory_bytes"},
                                      {"Memory/host_MiB", "host_memory_bytes"},
                                      {"Memory/host_peak_MiB", "host_peak_memory_bytes"}})
      expect_curve(tag, "epoch", member, 1 << 20);
  }
};

TEST(EvaluationPictures, ConfusionHasARowForEachClassOfImages) {
  const std::vector<Prediction> said = {{.index = 0, .label = 0, .top = 0},
                                        {.index = 1, .label = 1, .top = 0},
                                        {.index = 2, .label = 1, .top = 0}};
  EXPECT_EQ(confusion_table(said, std::vector<std::string>{"cat", "a|b"}),
            "| true class | cat | a&#124;b |\n"
            "| --- | --- | --- |\n"
            "| cat | 1 | 0 |\n"
            "| a&#124;b | 2 | 0 |\n");
}

TEST(EvaluationPictures, OfManyClassesThePairsConfusedMost) {
  std::vector<std::string> many;
  std::vector<Prediction> said = {{.index = 0, .label = 9, .top = 7},
                                  {.index = 1, .label = 9, .top = 7}};
  for (int k = 0; k < 100; ++k) {
    many.push_back("c" + std::to_string(k));
    said.push_back({.index = 2 + k, .label = k, .top = 0});
  }
  const std::string table = confusion_table(said, many);
  EXPECT_TRUE(
      table.starts_with("| true class | predicted | images |\n| --- | --- | --- |\n"
                        "| c9 | c7 | 2 |\n| c1 | c0 | 1 |\n"))
      << table;
  EXPECT_EQ(std::ranges::count(table, '\n'), 2 + 40);
}

TEST(EvaluationPictures, APictureHasWholeRows) {
  std::vector<uint8_t> five(size_t{5} * 2 * 2 * 3);
  for (size_t i = 0; i < five.size(); ++i) five[i] = static_cast<uint8_t>(1 + i / 12);
  const Image all = tiled(five, 2);
  EXPECT_EQ(all.height, 4);
  EXPECT_EQ(all.width, 8);
  std::vector<int> corners;  // of each place, the lower right
  for (int i = 0; i < 8; ++i)
    corners.push_back(all.pixels[size_t(3 * (8 * (2 * (i / 4) + 1) + 2 * (i % 4) + 1))]);
  EXPECT_EQ(corners, (std::vector{1, 2, 3, 4, 5, 0, 0, 0}));
}

TEST(EvaluationPictures, TheSurestMistakesComeFirst) {
  const std::vector<Prediction> said = {{.index = 0, .label = 0, .top = 1, .probability = .6f},
                                        {.index = 1, .label = 1, .top = 1, .probability = .99f},
                                        {.index = 2, .label = 0, .top = 1, .probability = .9f},
                                        {.index = 3, .label = 1, .top = 0, .probability = .7f}};
  std::vector<int64_t> found;
  for (const Prediction& p : surest_mistakes(said, 2)) found.push_back(p.index);
  EXPECT_EQ(found, (std::vector<int64_t>{2, 3}));
}

TEST_F(TensorBoardRuns, HasWhatMetricsHave) {
  go(words("--epochs 2"));
  expect_curves();
  const auto files = paths_in(in("run"));
  ASSERT_EQ(files.size(), 1u);
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, std::vector<Image>> images;
  for (const Event& event : events_of(files[0]))
    for (const auto& value : event.summary().value()) {
      if (value.metadata().plugin_data().plugin_name() == "text")
        texts[value.tag()].push_back(value.tensor().string_val(0));
      if (value.has_image()) {
        const std::string& png = value.image().encoded_image_string();
        images[value.tag()].push_back(
            decode_image({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, 0));
        EXPECT_EQ(images[value.tag()].back().width, value.image().width());
        EXPECT_EQ(images[value.tag()].back().height, value.image().height());
      }
    }
  ASSERT_EQ(texts["options"].size(), 1u);
  EXPECT_TRUE(has(texts["options"][0], "| --batch | 8 |\n")) << texts["options"][0];
  ASSERT_EQ(images["Images/train"].size(), 1u);
  EXPECT_EQ(images["Images/train"][0].width, 4 * 32);
  EXPECT_EQ(images["Images/train"][0].height, 2 * 32);
  // One per evaluation.
  EXPECT_EQ(images["Images/mistakes"].size(), 2u);
  ASSERT_EQ(texts["mistakes"].size(), 2u);
  EXPECT_TRUE(
      texts["mistakes"][0].starts_with("| picture | predicted | probability | true class |"));
  ASSERT_EQ(texts["confusion"].size(), 2u);
  EXPECT_EQ(std::ranges::count(texts["confusion"][0], '\n'), 12);  // of ten classes
}

// With nothing left to do there is nothing to log.
TEST_F(TensorBoardRuns, AFinishedRunGetsNoFurtherFile) {
  go(words("--epochs 1"));
  EXPECT_TRUE(has(go("--resume run").output, "nothing left to do"));
  EXPECT_EQ(paths_in(in("run")).size(), 1u);
}

TEST_F(TensorBoardRuns, HasTheOptionsAsParameters) {
  go(words("--steps 1 --nesterov --optimizer sgd"));
  tensorboard::HParams found;
  for (const Event& event : events_of(paths_in(in("run"))[0]))
    for (const auto& value : event.summary().value())
      if (const auto& plugin = value.metadata().plugin_data(); plugin.plugin_name() == "hparams") {
        EXPECT_EQ(value.tag(), "_hparams_/session_start_info");
        ASSERT_TRUE(found.ParseFromString(plugin.content()));
      }
  const auto& start = found.session_start_info();
  EXPECT_EQ(start.group_name(), "run");
  EXPECT_EQ(start.hparams().at("batch").number_value(), 8);
  EXPECT_EQ(start.hparams().at("optimizer").string_value(), "sgd");
  EXPECT_TRUE(start.hparams().at("nesterov").bool_value());
  EXPECT_FALSE(start.hparams().contains("workers"));
}

// A run killed after a checkpoint has logged later steps; the resumed run repeats them.
TEST_F(TensorBoardRuns, AResumedRunShowsNoStepTwice) {
  Program run(folder_.path(), words("--epochs 100 --save-every 3steps"));
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":5,"));
  ASSERT_TRUE(run.wait_for(in("run/last/state.json"), "crc32c"));
  const auto shown = [this] { return events_of(paths_in(in("run"))[0]).back().step(); };
  ASSERT_TRUE(wait_until([&] { return shown() > 3; }));
  kill(-run.pid(), SIGKILL);
  run.wait();
  const int64_t saved = load_checkpoint(in("run")).step;
  go("--resume run --steps " + std::to_string(saved + 9));
  EXPECT_EQ(paths_in(in("run")).size(), 2u);
  EXPECT_GT(events_of(paths_in(in("run"))[0]).back().step(), 3);
  expect_curves();
}

TEST_F(TensorBoardRuns, OffLeavesNoFile) {
  go(words("--steps 1 --tensorboard off"));
  EXPECT_TRUE(paths_in(in("run")).empty());
  EXPECT_TRUE(has(contents(in("run/config.json")), "\"tensorboard\": \"off\""));
}

TEST_F(TensorBoardRuns, ARunThatFailsBeforeItsFirstCheckpointKeepsItsFile) {
  const Finished end =
      run_program(folder_.path(), words("--steps 5 --optimizer sgd --warmup-epochs 0 --lr 1e30"));
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(paths_in(in("run")).size(), 1u);
}

// Fills the disk from the second update to the second to last.
class FullDisk : public Hook {
 public:
  explicit FullDisk(std::string path) : path_(std::move(path)) {}
  int priority() const override { return priority::measuring; }
  void after_train_iter(Run& run, StepRecord& r) override {
    if (r.step == 2) std::ofstream(path_) << std::string(1 << 27, 'x');
    if (r.step != run.end - 1) return;
    run.background.wait();
    std::filesystem::remove(path_);
  }

 private:
  std::string path_;
};

TEST_F(TensorBoardRuns, AFullDiskEndsLogsNotTheRun) {
  const SmallDisk disk(in("disk"), "100m");
  if (!disk.mounted()) GTEST_SKIP() << "can't mount a small disk here";
  testing::internal::CaptureStderr();
  // The lines logged meanwhile exceed a page, the unit in which files of this disk grow.
  const int code = train_here({"vit_tiny", "--image-size", "32", "--patch-size", "16", "--data",
                               in("cifar"), "--batch", "8", "--epochs", "6", "--eval-every", "100",
                               "--log-every", "1", "--save-every", "100", "--out", in("disk/run")},
                              list_of(std::make_unique<FullDisk>(in("disk/filler"))));
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_EQ(load_checkpoint(in("disk/run")).step, 30);
  for (const char* line :
       {"/run/metrics.jsonl: can't be written: No space left on device; training continues, "
        "without further log lines\n",
        ".0: can't be written: No space left on device; training continues, without TensorBoard's "
        "file\n",
        "/run/report.json: No space left on device; training continues, report.html is not up to "
        "date\n"})
    EXPECT_TRUE(has(errors, line)) << errors;
  EXPECT_EQ(std::ranges::count(errors, '\n'), 3) << errors;
  // Files end with a whole line or event.
  EXPECT_TRUE(contents(in("disk/run/metrics.jsonl")).ends_with("}\n"));
  const size_t lines = metric(in("disk/run"), "step", "step").size();
  const size_t events = shown(in("disk/run")).at("Loss/train").size();
  for (const size_t count : {lines, events}) EXPECT_TRUE(count >= 2 && count < 29) << count;
}

}  // namespace
}  // namespace bv::test
#endif
