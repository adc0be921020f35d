// report.html as written by runs and by ./launcher report.
#include "tests/program/program.h"

namespace bv::test {
namespace {

class ReportTest : public ShallowProgramTest {
 protected:
  ReportTest() { make_cifar(in("data")); }
  std::string page(const std::string& run = "run") const {
    return contents(in(run + "/report.html"));
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line)) << words;
  }
  const std::string short_run_ = on_vit + "--data data --batch 8 --warmup-epochs 0 ";
};

TEST_F(ReportTest, ARunLeavesAPageAndAResumedOneRenewsIt) {
  go(short_run_ + "--epochs 2 --out run --profile --steps 7");
  EXPECT_TRUE(has(page(), "Finished after 7 steps, 2 epochs."));
  for (const char* part :
       {"\"evaluated\":{\"step\":7,\"epoch\":2", "<h3>Classes after epoch 2</h3>",
        "<td>airplane</td>", "\"seconds\":[[\"", "data:image/png;base64,"})
    EXPECT_TRUE(has(page(), part));
  const std::string facts = contents(in("run/report.json"));
  EXPECT_TRUE(has(facts, "\"step\":7,\"epoch\":2"));

  std::filesystem::remove(in("run/report.html"));
  EXPECT_EQ(go("report run").output, "report: run/report.html\n");
  EXPECT_TRUE(has(page(), "Finished after 7 steps, 2 epochs."));

  go("--resume run --epochs 3");
  EXPECT_TRUE(has(page(), "Finished after 15 steps, 3 epochs."));
  EXPECT_EQ(names_in(in("run")).count("report.html.partial"), 0u);
}

// The command line shown on the page.
TEST_F(ReportTest, TheCommandRepeatsTheRun) {
  go(short_run_ + "-n 2 --epochs 1 --lr 2e-3 --augment strong --ra-ops 1 --seed 5 --out run");
  const std::string facts = contents(in("run/report.json"));
  const std::string begin = "\"command\":\"./launcher ";
  const size_t at = facts.find(begin) + begin.size();
  const std::string command = facts.substr(at, facts.find('"', at) - at);
  EXPECT_TRUE(has(command, "train -n 2 vit_tiny ")) << command;
  EXPECT_FALSE(has(command, "--betas")) << command;
  go(command + " --out again");
  EXPECT_EQ(contents(in("again/config.json")), contents(in("run/config.json")));
  EXPECT_EQ(losses(in("again")), losses(in("run")));
}

// A run that was stopped and extended: each of its commands, in order.
TEST_F(ReportTest, TheCommandsRepeatARunThatWasExtended) {
  go(short_run_ + "--epochs 2 --steps 7 --lr 2e-3 --out run");
  go("--resume run --epochs 3");
  const std::string facts = contents(in("run/report.json"));
  const std::string begin = "\"command\":\"./launcher ", next = "\\n./launcher ";
  const size_t at = facts.find(begin) + begin.size(), middle = facts.find(next, at);
  ASSERT_NE(middle, facts.npos) << facts.substr(at, 200);
  const std::string first = facts.substr(at, middle - at);
  const size_t second = middle + next.size();
  EXPECT_EQ(facts.substr(second, facts.find('"', second) - second), "--resume again --epochs 3");
  for (const char* never : {"--device", "--precision", "--tensorboard", "--micro-batches"})
    EXPECT_FALSE(has(first, never)) << first;
  go(first);
  go("--resume again --epochs 3");
  EXPECT_EQ(losses(in("again")), losses(in("run")));
}

TEST_F(ReportTest, APageThatCantBeWrittenDoesntHurtTheRun) {
  go(short_run_ + "--epochs 1 --out run");
  std::filesystem::remove(in("run/report.html"));
  std::filesystem::create_directory(in("run/report.html"));
  const Finished end = go("--resume run --epochs 3");
  const std::string line = "report.html is not up to date";
  EXPECT_TRUE(has(end.errors, line));
  EXPECT_EQ(end.errors.find(line), end.errors.rfind(line));
  EXPECT_EQ(last_metric(in("run"), "epoch", "epoch"), "3");
}

TEST_F(ReportTest, ADivergedRunSaysSo) {
  go(short_run_ + "--epochs 1 --out run");
  const Finished end = run("--resume run --epochs 3");
  ASSERT_EQ(end.code, 0);
  const Finished diverged =
      run(short_run_ + "--epochs 9 --optimizer sgd --lr 1e4 --save-every 1steps --out bad");
  ASSERT_EQ(diverged.code, 1) << diverged.output;
  EXPECT_TRUE(has(page("bad"), "\"state\":\"Ended by an error: step "));
  EXPECT_TRUE(has(page("bad"), "not finite"));
  EXPECT_TRUE(has(go("report bad run --out both.html").output, "report: both.html"));
  EXPECT_TRUE(has(contents(in("both.html")), "\"failed\":true"));
}

TEST_F(ReportTest, MistakesAreOneLine) {
  go(short_run_ + "--steps 2 --out run");
  expect_refused("report nothing", "nothing: no such folder");
  expect_refused("report data", "data: not a run's folder, it has no config.json");
  expect_refused("report", "report needs RUN...");
  write_text(in("mine.html"), "<!DOCTYPE html><p>mine");
  expect_refused("report run --out mine.html",
                 "mine.html exists and is not a page of this program");
  expect_refused("report run --out nowhere/a.html",
                 "nowhere/a.html can't be written: there is no folder nowhere");
  EXPECT_EQ(contents(in("mine.html")), "<!DOCTYPE html><p>mine");
  expect_refused("report run ./run", "./run is given twice; name each run once");
  EXPECT_EQ(go("report run --out page").output, "report: page.html\n");
  expect_refused("report run --out /proc/page.html",
                 "can't write /proc/page.html: No such file or directory; --out FILE writes the "
                 "page elsewhere");
}

}  // namespace
}  // namespace bv::test
