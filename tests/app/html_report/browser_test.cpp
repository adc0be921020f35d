// Draws report.html in headless Chromium and counts the marks.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <regex>

#include "app/html_report/html_report.h"
#include "base/text.h"
#include "tests/app/html_report/run_folder.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v chromium >/dev/null") != 0)
      GTEST_SKIP() << "chromium is not installed: make deps-dev";
  }
  // The document after its scripts have run, which must have no error.
  std::string drawn(const std::string& html) {
    write_text(folder_ / "page.html", html);
    const std::string command =
        "timeout 300 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage"
        " --disable-gpu-watchdog"
        " --user-data-dir='" +
        folder_ / "profile" + "' --enable-logging=stderr --dump-dom 'file://" +
        folder_ / "page.html" + "' 2>'" + folder_ / "log" + "'";
    std::string dom(0, ' '), part(1 << 16, ' ');
    FILE* pipe = popen(command.c_str(), "r");
    for (size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) dom.append(part, 0, n);
    EXPECT_EQ(pclose(pipe), 0);
    for (const std::string& line : split(contents(folder_ / "log"), '\n'))
      EXPECT_EQ(line.find("CONSOLE"), line.npos) << line;
    for (const auto& [name, milliseconds] :
         {std::pair{"drawn", &drawing_ms_}, {"yardstick", &yardstick_ms_}}) {
      std::smatch number;
      const std::string words = std::string("data-") + name + "=\"([0-9]+)\"";
      if (std::regex_search(dom, number, std::regex(words))) *milliseconds = std::stoi(number[1]);
    }
    return dom.substr(dom.find("<main"), dom.find("<noscript") - dom.find("<main"));
  }
  static long count(const std::string& text, const std::string& mark) {
    const std::regex pattern(mark);
    return std::distance(std::sregex_iterator(text.begin(), text.end(), pattern),
                         std::sregex_iterator());
  }
  RunReport run(const Json& facts, const std::string& name = "run") const {
    write_run(folder_ / name, facts);
    return load_run(folder_ / name);
  }
  static std::string page(const RunReport& run) { return report_page({&run, 1}); }

  TemporaryFolder folder_;
  int drawing_ms_ = -1, yardstick_ms_ = -1;
};

TEST_F(Browser, DrawsAMarkForEachValue) {
  const std::string dom = drawn(page(run(facts_with_hostile_names())));
  EXPECT_EQ(count(dom, "<figure class=\"chart\""), 3);  // loss, accuracy, learning rate
  // One each for the epoch's two losses and its accuracy, two for the learning rates.
  EXPECT_EQ(count(dom, "<circle"), 1 + 1 + 1 + 2);
  EXPECT_EQ(count(dom, "class=\"lost\""), 2);  // the loss of step 2, and its legend
  EXPECT_EQ(count(dom, "<td class=\"hit\""), 1);
  EXPECT_EQ(count(dom, "<td class=\"miss\""), 1);
  EXPECT_EQ(count(dom, "<td class=\"none\""), 2);
  EXPECT_EQ(count(dom, "<div class=\"bar\""), 2);  // memory, seconds
  EXPECT_EQ(count(dom, "<rect"), 1);               // scratch
  EXPECT_EQ(count(dom, "<img"), 2);
  EXPECT_EQ(count(dom, "<script"), 0);
  EXPECT_TRUE(has(dom,
                  "Measured on rank 0: at most 500 MiB on the host, 311 MiB on the device, "
                  "where all programs use 1.0 GiB."));
  EXPECT_TRUE(has(dom, "at most; 300 MiB planned"));
  for (const char* figure : {">1.3 s</td>", ">0.5 s</td>", ">500 MiB</td>", ">311 MiB</td>"})
    EXPECT_TRUE(has(dom, figure)) << figure;
  EXPECT_TRUE(has(dom, "Ended by an error: step 3: &lt;/script&gt;&lt;script&gt;alert(1)"));
  for (const char* wrong : {"NaN", "undefined", "Infinity", ">false<", "[object"})
    EXPECT_FALSE(has(dom, wrong)) << wrong;
}

// Sends events like a keyboard and a mouse.
TEST_F(Browser, ChartsAreReadAndZoomed) {
  const std::string html = page(run(facts_with_hostile_names()));
  const auto after = [&](const std::string& events) {
    const std::string script =
        "<script>const drawing = charts[0].drawing, press = key => "
        "drawing.dispatchEvent(new KeyboardEvent('keydown', {key}));" +
        events + "</script></body>";
    return drawn(replaced(html, "</body>", script));
  };
  std::string dom = after("press('ArrowRight'); press('ArrowRight');");
  EXPECT_TRUE(has(dom, "role=\"status\""));
  EXPECT_TRUE(has(dom, ">step 2<"));
  EXPECT_TRUE(has(dom, "train, steps: not finite"));
  EXPECT_TRUE(has(dom, "val: 1.5<"));
  EXPECT_EQ(count(dom, "hidden=\"\">show all"), 3);
  dom = after("press('ArrowRight'); press('+');");
  EXPECT_EQ(count(dom, "hidden=\"\">show all"), 0);  // all charts show the same steps
  EXPECT_TRUE(has(dom, ">1.4<"));
  dom = after("press('ArrowRight'); press('+'); press('Escape');");
  EXPECT_EQ(count(dom, "hidden=\"\">show all"), 3);
  dom = after(
      "const frame = drawing.getBoundingClientRect(), send = (name, part) => drawing.dispatchEvent("
      "new PointerEvent(name, {buttons: 1, clientX: frame.left + part * frame.width}));"
      "send('pointerdown', .5); send('pointermove', .8); send('pointerup', .8);");
  EXPECT_EQ(count(dom, "hidden=\"\">show all"), 0);
}

TEST_F(Browser, ShowsTheBestEvaluationAndTheLast) {
  Json facts = facts_with_hostile_names();
  facts["best"] = facts["evaluated"];
  EXPECT_EQ(count(drawn(page(run(facts))), "aria-pressed"), 0);  // the best is the last one
  facts["best"]["step"] = 1;
  facts["best"]["images"] = Json::array({Json::array({1, 1, 7})});
  const std::string html = page(run(facts));
  EXPECT_EQ(count(drawn(html), "title=\"7 of 7 dog predicted as dog\""), 1);
  const std::string last = drawn(
      replaced(html, "</body>",
               "<script>document.querySelectorAll('[aria-pressed]')[1].click()</script></body>"));
  EXPECT_EQ(count(last, "title=\"7 of 7"), 0);
  EXPECT_EQ(count(last, "<td class=\"miss\""), 1);
}

TEST_F(Browser, DrawsWhatThereIs) {
  RunReport bare = run(facts_with_hostile_names());
  bare.facts = nullptr;
  const std::string dom = drawn(page(bare));
  EXPECT_TRUE(has(dom, "Logged after 2 steps, 1 epoch."));
  EXPECT_EQ(count(dom, "<h2>Evaluation</h2>"), 0);
  EXPECT_EQ(count(dom, "<h2>Epochs</h2>"), 1);
}

TEST_F(Browser, ComparesRuns) {
  Json facts = facts_with_hostile_names();
  std::vector<RunReport> runs;
  for (int k = 0; k < 5; ++k) runs.push_back(run(facts, "run" + std::to_string(k)));
  runs[4].config["lr"] = 0.5;
  const std::string dom = drawn(report_page(runs));
  EXPECT_TRUE(has(dom, "<h1>5 runs compared</h1>"));
  EXPECT_EQ(count(dom, "class=\"run\""), 5);
  EXPECT_EQ(count(dom, "<path class=\"curve\" d=\"M[^1]"), 5 * 5);  // three losses, accuracy, rate
  EXPECT_TRUE(has(dom, "<th scope=\"row\">lr</th><td>0.001</td>"));
  EXPECT_TRUE(has(dom, "<td>0.5</td></tr>"));
  EXPECT_EQ(count(dom, "<h2>Evaluation</h2>"), 0);
}

// A page of 300 epochs and 1,000 classes: under 3 MB, drawn in under a second of browser time.
TEST_F(Browser, DrawsALongRun) {
  Json facts = facts_with_hostile_names();
  facts["classes"] = Json::array();
  Json& images = facts["evaluated"]["images"] = Json::array();
  for (int k = 0; k < 1000; ++k) {
    facts["classes"].push_back("class " + std::to_string(k));
    images.push_back({k, k, 40});
    for (int other = 1; other <= 8; ++other) images.push_back({k, (k + other * 37) % 1000, other});
  }
  facts["evaluated"]["mistakes"] = facts["best"] = nullptr;
  facts["evaluated"]["mistakes"] = Json::array();
  write_run(folder_ / "long", facts);
  std::string lines;
  for (int step = 50; step <= 300 * 1000; step += 50) {
    lines += to_line({{"kind", "step"},
                      {"epoch", step / 1000},
                      {"step", step},
                      {"loss", json_number(7 - step * 2e-5 + step % 350 * 1e-3, 9)},
                      {"top1", 0.25},
                      {"lr", 1e-3},
                      {"grad_norm", 1.5},
                      {"images_per_second", 1200.5},
                      {"data_seconds", 1e-4},
                      {"step_seconds", 0.2},
                      {"loss_scale", 65536},
                      {"skipped", step / 90000}}) +
             "\n";
    if (step % 1000 == 0)
      lines += to_line({{"kind", "epoch"},
                        {"epoch", step / 1000},
                        {"step", step},
                        {"train_loss", 7 - step * 2e-5},
                        {"train_top1", step * 2e-6},
                        {"val_loss", 6.5 - step * 1e-5},
                        {"val_top1", step * 2.5e-6},
                        {"lr", 1e-3},
                        {"images_per_second", 1200},
                        {"seconds", 1000.5}}) +
               "\n";
  }
  write_text(folder_ / "long/metrics.jsonl", lines);
  const std::string html = page(load_run(folder_ / "long"));
  EXPECT_LT(html.size(), 3u << 20);
  // Measured beside the drawing, since other processes slow down both: 100,000 rows of a table.
  const std::string dom = drawn(replaced(html, "</body>", R"(<script>{
    const began = performance.now(), table = document.createElement('table');
    for (let i = 0; i < 100000; ++i) table.insertRow().insertCell().textContent = i;
    document.documentElement.dataset.yardstick = Math.round(performance.now() - began);
  }</script></body>)"));
  EXPECT_EQ(count(dom, "<figure class=\"chart\""), 8);
  // Rows of each table and its head: classes, pairs, operations, memory, tensors, epochs, options.
  EXPECT_EQ(count(dom, "<tr"), 7 + 200 + 40 + 1 + 1 + 1 + 300 + 6);
  EXPECT_TRUE(has(dom, "The 200 classes of 1000 with the lowest F1."));
  EXPECT_TRUE(drawing_ms_ >= 0 && drawing_ms_ < 4 * yardstick_ms_)
      << drawing_ms_ << " ms, the yardstick " << yardstick_ms_;
  EXPECT_EQ(count(dom, "class=\"matrix"), 0);
}

}  // namespace
}  // namespace bv::test
