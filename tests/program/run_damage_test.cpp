// Damaged run folders: eval, predict, --weights and report say what --resume says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/commands/commands.h"
#include "app/commands/trained_model.h"
#include "app/html_report/run_report.h"
#include "base/machine_error.h"
#include "engine/options/config.h"
#include "tests/program/program.h"
#include "tests/someone_else.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;

class RunDamage : public ShallowProgramTest {
 protected:
  void SetUp() override {
    make_class_folders(in("photos"), 2, 6);
    go(on_vit +
       "--data photos --batch 4 --steps 2 --save-every 1steps --keep 3 --report --out run");
  }
  void expect_line(const std::string& words, const std::string& part, int code = 2) const {
    const Finished end = run(words);
    SCOPED_TRACE(words);
    EXPECT_EQ(end.code, code) << end.output << end.errors;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), part));
    EXPECT_EQ(end.output, "");
  }
  void expect_all(const std::string& part) const {
    for (const char* words :
         {"eval run", "predict run photos", "vit_tiny --weights run/last/weights.safetensors"})
      expect_line(words, part);
  }
};

const std::string intact = "; run/step-00000001 is intact: ";

TEST_F(RunDamage, WeightsWithAFlippedBit) {
  std::string bytes = contents(in("run/last/weights.safetensors"));
  bytes[bytes.size() - 100] ^= 16;
  write_text(in("run/last/weights.safetensors"), bytes);
  expect_all(
      "run/step-00000002/weights.safetensors: damaged: its checksum doesn't match the saved "
      "file's" +
      intact);
  expect_line("--resume run --steps 3", intact + "`ln -sfn step-00000001 run/last`, then --resume");
  go("eval run/step-00000001");
  fs::remove(in("run/last")), fs::create_symlink("step-00000001", in("run/last"));
  go("eval run");
}

TEST_F(RunDamage, WeightsThatAreCut) {
  fs::resize_file(in("run/last/weights.safetensors"), 100000);
  expect_all("run/step-00000002/weights.safetensors: truncated: 100000 of ");
}

TEST_F(RunDamage, LastLeadsNowhere) {
  fs::remove(in("run/last")), fs::create_symlink("step-00000099", in("run/last"));
  for (const char* words : {"eval run", "predict run photos"})
    expect_line(words,
                "run/last: names run/step-00000099, which doesn't exist; "
                "run/step-00000002 is intact: give it in place of run/last, or "
                "`ln -sfn step-00000002 run/last`");
  fs::remove(in("run/last"));
  EXPECT_TRUE(has(go("eval run").output, "weights: run/step-00000002/weights.safetensors\n"));
  EXPECT_EQ(go("predict run photos").errors,
            "run/last is missing; the newest checkpoint is run/step-00000002\n");
  fs::create_symlink("zq7", in("zq7"));
  expect_line("data check zq7", "zq7: a link without a target (-> zq7)");
  expect_line("vit_tiny --weights zq7", "zq7: a link without a target (-> zq7)");
  expect_line("predict zq7 photos", "zq7: a link without a target (-> zq7)");
}

TEST_F(RunDamage, TheConfigNamesNoModel) {
  const std::string config = contents(in("run/config.json"));
  write_text(in("run/config.json"), replaced(config, "\"vit_tiny\"", "\"nonesuch\""));
  expect_line("--resume run", "run/config.json: unknown model 'nonesuch'");
  expect_line("eval run",
              "run/config.json: its model is nonesuch, but run/last/weights.safetensors has "
              "weights of vit_tiny; put it back, or give --model vit_tiny");
  go("eval run --model vit_tiny");
  expect_line("--config run/config.json", "run/config.json: unknown model 'nonesuch'");
}

TEST_F(RunDamage, TheDataHasMoved) {
  fs::rename(in("photos"), in("moved"));
  const std::string gone = in("photos") +
                           ": the run's --data is not there any more; if it was moved, --data PATH "
                           "says where to";
  expect_line("--resume run --steps 3", gone);
  expect_line("eval run", gone);
  go("eval run --data moved");
  go("--resume run --steps 3 --data moved");
  EXPECT_EQ(last_metric(in("run"), "step", "step"), "3");
  go("eval run");
}

TEST_F(RunDamage, MetricsThatAreNoJson) {
  const std::string path = in("run/metrics.jsonl"), whole = contents(path);
  const size_t second = whole.find('\n') + 1;
  write_text(path, whole.substr(0, second) + "garbage\n" + whole.substr(second));
  expect_line("report run", "run/metrics.jsonl, line 2: column 1: this is not JSON");
  expect_line("report run",
              "; once the run has ended, `sed -i 2d run/metrics.jsonl` removes this line");
  write_text(path, whole);
  go("report run");
  fs::remove(path);
  expect_line("report run", "run/metrics.jsonl: no such file, and without it there is nothing");
  fs::create_symlink("nowhere", in("link"));
  expect_line("report link", "link: a link without a target (-> nowhere)");
  write_text(in("text"), "text");
  expect_line("report text", "text: a file, not a run's folder");
}

TEST_F(RunDamage, AFolderThatMayNotBeEntered) {
  if (!AsSomeoneElse::can()) GTEST_SKIP() << "this root can't be someone else";
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(in("run"), fs::perms::none);
  const std::string run = in("run"),
                    end = ": Permission denied; its folder's owner can allow it: `chmod a+rx " +
                          run + "`";
  std::string found, report, resumed;
  {
    const AsSomeoneElse other;
    found = error_of<MachineError>([&] { find_finished(run); });
    report = error_of<MachineError>([&] { load_run(run); });
    resumed = error_of<MachineError>([&] {
      read_request(parse_command_line(std::vector<std::string>{"--resume", run}));
    });
  }
  fs::permissions(in("run"), fs::perms(0755));
  EXPECT_EQ(found, run + "/weights.safetensors" + end);
  EXPECT_EQ(report, run + "/config.json" + end);
  EXPECT_EQ(resumed, run + "/config.json" + end);
}

}  // namespace
}  // namespace bv::test
