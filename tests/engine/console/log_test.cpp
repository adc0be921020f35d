// metrics.jsonl, plain lines and the progress bar.
#include "engine/console/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files/file_io.h"
#include "engine/console/console.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

StepRecord step_record(int64_t step) {
  return {.epoch = 1,
          .step = step,
          .loss = 2.5,
          .lr = 1e-3,
          .grad_norm = 0.25,
          .top1 = 0.125,
          .images_per_second = 100,
          .data_seconds = 0,
          .step_seconds = 0.5};
}

// The standard output of the actions.
template <class F>
std::string printed(F&& actions) {
  testing::internal::CaptureStdout();
  actions();
  return testing::internal::GetCapturedStdout();
}

TEST(Log, RecordsHaveExactlyTheseKeys) {
  EXPECT_EQ(
      to_json(step_record(3)),
      R"({"kind":"step","epoch":1,"step":3,"loss":2.5,"top1":0.125,"lr":0.001,"grad_norm":0.25,)"
      R"("images_per_second":100,"data_seconds":0,"step_seconds":0.5,"bubble_seconds":0,"loss_scale":1,"skipped":0})");
  EpochRecord epoch{.epoch = 2,
                    .step = 64,
                    .train_loss = 1.5,
                    .train_top1 = 0.375,
                    .val_loss = 1.25,
                    .val_top1 = 0.5,
                    .val_top5 = 0.75,
                    .ema_loss = 1.125,
                    .ema_top1 = 0.625,
                    .lr = 0.5,
                    .images_per_second = 10,
                    .seconds = 4,
                    .eval_seconds = 1.5,
                    .save_seconds = 0.25,
                    .peak_memory_bytes = 1 << 20,
                    .host_memory_bytes = 2 << 20,
                    .host_peak_memory_bytes = 3 << 20,
                    .device_memory_bytes = 5 << 20,
                    .device_peak_memory_bytes = 4 << 20};
  EXPECT_EQ(
      to_json(epoch),
      R"({"kind":"epoch","epoch":2,"step":64,"train_loss":1.5,"train_top1":0.375,"val_loss":1.25,)"
      R"("val_top1":0.5,"val_top5":0.75,"ema_loss":1.125,"ema_top1":0.625,"lr":0.5,)"
      R"("images_per_second":10,"seconds":4,"eval_seconds":1.5,"save_seconds":0.25,)"
      R"("peak_memory_bytes":1048576,"host_memory_bytes":2097152,)"
      R"("host_peak_memory_bytes":3145728,"device_memory_bytes":5242880,)"
      R"("device_peak_memory_bytes":4194304})");
  epoch.precision = "fp16", epoch.precision_reason = "within epochs 2 to 3";
  EXPECT_TRUE(has(to_json(epoch), R"("lr":0.5,"precision":"fp16",)"
                                  R"("precision_reason":"within epochs 2 to 3","images_per)"));
  epoch.precision.clear();
  epoch.val_loss = epoch.val_top1 = epoch.val_top5 = std::nullopt;
  epoch.train_top1 = epoch.ema_loss = epoch.ema_top1 = epoch.eval_seconds = std::nullopt;
  epoch.device_memory_bytes = epoch.device_peak_memory_bytes = std::nullopt;
  EXPECT_EQ(
      to_json(epoch),
      R"({"kind":"epoch","epoch":2,"step":64,"train_loss":1.5,"train_top1":null,"val_loss":null,)"
      R"("val_top1":null,"lr":0.5,"images_per_second":10,"seconds":4,"eval_seconds":null,)"
      R"("save_seconds":0.25,"peak_memory_bytes":1048576,"host_memory_bytes":2097152,)"
      R"("host_peak_memory_bytes":3145728})");
}

TEST(Log, NumbersThatAreNotFiniteAreNull) {
  StepRecord r = step_record(1);
  r.loss = NAN;
  r.grad_norm = INFINITY;
  EXPECT_TRUE(has(to_json(r), R"("loss":null)"));
  EXPECT_TRUE(has(to_json(r), R"("grad_norm":null)"));
}

TEST(Log, AFloatReadsBackAsItWas) {
  StepRecord r = step_record(1);
  const float loss = 2.30258512f;
  r.loss = loss;
  const std::string text = to_json(r);
  EXPECT_EQ(std::strtof(text.c_str() + text.find("\"loss\":") + 7, nullptr), loss);
}

TEST(Log, AFileGrowsAtOnce) {
  TemporaryFolder folder;
  const std::string path = folder / "log";
  write_text(path, "old\n");
  LogFile file(path, 0);
  file.cut(0);
  file.append("a\n");
  EXPECT_EQ(contents(path), "a\n");
  file.append("b\n");
  EXPECT_EQ(contents(path), "a\nb\n");
  EXPECT_THROW(LogFile(path, O_EXCL), RunError);
}

TEST(Log, AResumedRunLogsNoStepTwice) {
  TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  EXPECT_EQ(end_of_step(path, 20), 0);  // no file
  std::string kept;
  for (const int64_t step : {10, 20}) kept += to_json(step_record(step)) + "\n";
  kept += to_json(EpochRecord{.epoch = 1, .step = 20}) + "\n";
  const std::string again = to_json(step_record(30)) + "\n";
  const std::string torn = R"({"kind":"step","epo)";
  for (const std::string& rest : {std::string(), again, torn, again + torn}) {
    write_text(path, kept + rest);
    EXPECT_EQ(end_of_step(path, 20), int64_t(kept.size()));
  }
}

// The evaluation is repeated, so the epoch's line is written again.
TEST(Log, AResumedRunLogsAnUnsettledEpochAgain) {
  TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string step = to_json(step_record(20)) + "\n",
                    epoch = to_json(EpochRecord{.epoch = 1, .step = 20}) + "\n",
                    before = to_json(EpochRecord{.epoch = 1, .step = 10}) + "\n";
  write_text(path, before + step + epoch);
  EXPECT_EQ(end_of_step(path, 20, true), int64_t((before + step + epoch).size()));
  EXPECT_EQ(end_of_step(path, 20, false), int64_t((before + step).size()));
}

TEST(Log, PlainLinesWhereThereIsNoTerminal) {
  const std::string text = printed([] {
    Console console(10, 2);
    console.step(step_record(1));
    console.epoch({.epoch = 1,
                   .step = 1,
                   .train_loss = 2,
                   .train_top1 = 0.5,
                   .val_loss = 1,
                   .val_top1 = 0.9,
                   .images_per_second = 100});
    console.epoch({.epoch = 2, .step = 2, .train_loss = 2});  // trained before the run was resumed
    console.line("done");
  });
  EXPECT_EQ(
      text,
      "epoch 1  step 1/10  loss 2.5000  top-1 0.1250  lr 0.001  grad norm 0.25  100.0 images/s\n"
      "epoch  1  train 2.000  val 1.000  top-1  90.0%  100/s  0:00\n"
      "epoch  2  train 2.000  0:00\n"
      "done\n");
}

TEST(Log, EpochsStandUnderEachOther) {
  const EpochRecord best{.epoch = 10,
                         .train_loss = .0495,
                         .val_loss = 8320,
                         .val_top1 = 1,
                         .val_top5 = 1,
                         .images_per_second = 12345,
                         .seconds = 83},
      early{.epoch = 9,
            .train_loss = 12.345,
            .val_loss = 1.8651,
            .val_top1 = .1,
            .val_top5 = .5,
            .images_per_second = 12000,
            .seconds = 83};
  EXPECT_EQ(epoch_line(early, 30),
            "epoch  9  train 12.35  val 1.865  top-1  10.0%  top-5  50.0%  12000/s  1:23");
  EXPECT_EQ(epoch_line(best, 30),
            "epoch 10  train 0.050  val  8320  top-1 100.0%  top-5 100.0%  12345/s  1:23");
  EpochRecord average = best;
  average.ema_loss = 1.5, average.ema_top1 = .75;
  EXPECT_EQ(
      epoch_line(average, 300),
      "epoch  10  train 0.050  val  8320  top-1 100.0%  ema 1.500  75.0%  12345/s");  // no room
}

TEST(Log, MeasuredFiguresFitInALine) {
  EpochRecord r{.eval_seconds = 2.06,
                .save_seconds = 0.31,
                .peak_memory_bytes = 374 << 20,
                .host_peak_memory_bytes = 530 << 20};
  EXPECT_EQ(measured_line(r), "  eval 2.1 s  saving 0.3 s  host 530 MiB  planned 374 MiB");
  r.device_memory_bytes = 900 << 20, r.device_peak_memory_bytes = int64_t{1005} << 20;
  r.eval_seconds.reset();
  EXPECT_EQ(measured_line(r), "  saving 0.3 s  host 530 MiB  device 0.981 GiB  planned 374 MiB");
  r.eval_seconds = 99.94, r.save_seconds = 3599;
  for (int64_t* bytes :
       {&r.peak_memory_bytes, &r.host_peak_memory_bytes, &*r.device_peak_memory_bytes})
    *bytes = int64_t{12345} << 20;
  const std::string longest = measured_line(r);
  EXPECT_EQ(longest,
            "  eval 99.9 s  saving 59:59  host 12.1 GiB  device 12.1 GiB  planned 12.1 GiB");
  EXPECT_LT(longest.size(), 80u);
}

TEST(Log, AQuietConsoleSaysWhatIsImportant) {
  const std::string text = printed([] {
    Console console(10, 2, true);
    console.line("a line");
    console.step(step_record(1));
    console.progress(step_record(1));
    console.epoch({.epoch = 1, .step = 1});
    console.line("warning: something", true);
  });
  EXPECT_EQ(text, "warning: something\n");
}

TEST(Log, ATerminalsBarIsClearedBeforeALine) {
  const std::string text = printed([] {
    Console console(10, 2);
    console.progress({.epoch = 1, .epochs = 1, .step = 1});
    console.progress({.epoch = 1, .epochs = 1, .step = 2});  // too soon to redraw
    console.line("a line");
  });
  EXPECT_TRUE(has(text, "step 1/10"));
  EXPECT_FALSE(has(text, "step 2/10"));
  EXPECT_TRUE(text.ends_with("\r\x1b[Ka line\n")) << text;
}

TEST(Log, FilesThatCantBeWritten) {
  EXPECT_THROW(LogFile("/nowhere/log", 0), RunError);
  TemporaryFolder folder;
  SmallDisk disk(folder / "disk", "4k");
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a small disk here";
  LogFile file(folder / "disk/log", 0);
  const std::string line(999, 'x');
  for (int i = 0; i < 4; ++i) file.append(line + "\n");
  // The disk has room for 96 bytes of the line, but none of them stays in the file.
  EXPECT_THROW(file.append(line + "\n"), RunError);
  EXPECT_EQ(contents(folder / "disk/log").size(), 4000u);
}

TEST(ProgressLine, FitsTheTerminal) {
  const StepRecord now{.epoch = 1,
                       .epochs = 2,
                       .step = 16,
                       .mean_loss = 2.3456,
                       .lr = 1e-3,
                       .images_per_second = 812.3};
  EXPECT_EQ(progress_line(now, 64, 42, 100),
            "epoch 1/2  step 16/64  [=======                       ]"
            "  loss 2.346  lr 0.001  812/s   0:42 left");
  EXPECT_EQ(progress_line(now, 64, 42, 79),
            "epoch 1/2  step 16/64  [===          ]  loss 2.346  lr 0.001  812/s   0:42 left");
  EXPECT_EQ(progress_line(now, 64, 42, 70),
            "epoch 1/2  step 16/64  [===           ]  loss 2.346  812/s   0:42 left");
  EXPECT_EQ(progress_line(now, 64, 42, 48), "epoch 1/2  step 16/64  loss 2.346   0:42 left");
  // The bar has the same length before the time left is known.
  const size_t bar = progress_line(now, 64, 642, 79).find(']');
  for (const double left : {-1., 0., 42.})
    EXPECT_EQ(progress_line(now, 64, left, 79).find(']'), bar);
  for (int width = 0; width < 140; ++width)
    EXPECT_LE(progress_line(now, 64, 42, width).size(), static_cast<size_t>(std::max(width, 1)));
  EXPECT_EQ(clock_text(42.7), "0:42");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

}  // namespace
}  // namespace bv::test
