// report.html: its text, its charts, what it is made from; the program's part is report_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "app/html_report/html_report.h"
#include "app/html_report/markup/chart.h"
#include "app/html_report/markup/data_uri.h"
#include "app/html_report/markup/html.h"
#include "base/file_io.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using Strings = std::vector<std::string>;

Strings labels(const Axis& axis) {
  Strings all;
  for (const Tick& tick : axis.ticks) all.push_back(tick.label);
  return all;
}

// The elements that are open at the end of the text, or closed without having been opened.
Strings unbalanced(const std::string& html) {
  Strings open;
  for (size_t at = 0; (at = html.find('<', at)) != html.npos;) {
    const size_t end = html.find('>', at);
    const std::string tag = html.substr(at + 1, html.find_first_of(" \n>/", at + 2) - at - 1);
    if (html[at + 1] == '/') {
      const std::string name = html.substr(at + 2, end - at - 2);
      if (open.empty() || open.back() != name) return {"</" + name + ">"};
      open.pop_back();
    } else if (html[at + 1] != '!' && html[end - 1] != '/' && tag != "meta" && tag != "img" &&
               tag != "br") {
      open.push_back(tag);
    }
    at = tag == "script" || tag == "style" ? html.find("</" + tag, end) : end;
  }
  return open;
}

TEST(Html, WhatComesFromOutsideIsText) {
  EXPECT_EQ(escape_html("<b a=\"1\">R&B's"), "&lt;b a=&quot;1&quot;&gt;R&amp;B&#39;s");
  EXPECT_EQ(escape_html("caf\xc3\xa9 \xff \x1b"), "caf\xc3\xa9 ? ?");
}

TEST(Axis, TicksAreRoundNumbers) {
  EXPECT_EQ(labels(make_axis(0, 1, AxisScale::linear, 5)),
            (Strings{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(make_axis(3.1, 7.2, AxisScale::linear, 5)),
            (Strings{"3", "4", "5", "6", "7", "8"}));
  EXPECT_EQ(labels(make_axis(0, 600000, AxisScale::linear, 5, false)),
            (Strings{"0", "200k", "400k", "600k"}));
  EXPECT_EQ(labels(make_axis(0, 1e-4, AxisScale::linear, 5)),
            (Strings{"0", "2e-5", "4e-5", "6e-5", "8e-5", "1.0e-4"}));
  EXPECT_EQ(labels(make_axis(-1, 1, AxisScale::linear, 4)),
            (Strings{"-1.0", "-0.5", "0", "0.5", "1.0"}));
  EXPECT_EQ(labels(make_axis(0.06, 2.3, AxisScale::log10, 5)),
            (Strings{"0.05", "0.1", "0.2", "0.5", "1", "2", "5"}));
  EXPECT_EQ(labels(make_axis(0.002, 900, AxisScale::log10, 5)),
            (Strings{"0.01", "0.1", "1", "10", "100", "1k"}));
  EXPECT_EQ(labels(make_axis(1024, 65536, AxisScale::log2, 5)),
            (Strings{"1024", "4096", "16384", "65536"}));
}

TEST(Axis, OneValueHasRoomAroundIt) {
  for (const double x : {0.0, 2.5, -3.0, 1e-9, 1e9}) {
    const Axis axis = make_axis(x, x, AxisScale::linear, 5);
    EXPECT_LT(axis.low, axis.high) << x;
    EXPECT_TRUE(axis.place(x) >= 0 && axis.place(x) <= 1) << x;
    EXPECT_GE(axis.ticks.size(), 2u) << x;
  }
  const Axis axis = make_axis(0.5, 0.5, AxisScale::log10, 5);
  EXPECT_TRUE(axis.place(0.5) >= 0 && axis.place(0.5) <= 1);
}

TEST(Thinned, SpikesGapsAndEndsStay) {
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i) points.push_back({double(i), std::sin(i * 1e-3)});
  points[5017].y = 50;
  points[70033].y = -50;
  points[80071].y = NAN;
  const std::vector<Point> thin = thinned(points, 1000);
  EXPECT_LE(thin.size(), 1010u);
  const auto has_x = [&](double x) {
    return std::any_of(thin.begin(), thin.end(), [&](const Point& p) { return p.x == x; });
  };
  for (const double x : {0.0, 5017.0, 70033.0, 80071.0, 99999.0}) EXPECT_TRUE(has_x(x)) << x;
  for (size_t i = 1; i < thin.size(); ++i) EXPECT_LT(thin[i - 1].x, thin[i].x);
  EXPECT_EQ(thinned(std::vector<Point>(points.begin(), points.begin() + 1000), 1000).size(), 1000u);
}

TEST(Chart, SaysWhatItShowsAndHasNoNumberThatIsNone) {
  const std::string svg = draw(
      {.title = "Loss",
       .unit = "",
       .x_name = "step",
       .curves = {{"train", {{1, 2}, {2, NAN}, {3, HUGE_VAL}, {4, 1}}}, {"<val>", {{4, 1.5}}, 1}}});
  EXPECT_TRUE(has(svg, "aria-label=\"Loss by step. train: from 2 to 1."));
  EXPECT_TRUE(has(svg, "&lt;val&gt;"));
  EXPECT_TRUE(has(svg, "class=\"lost\""));
  EXPECT_TRUE(has(svg, "not finite</li>"));
  for (const char* wrong : {"nan\"", "nan ", "inf", "<val>"})
    EXPECT_FALSE(has(svg, wrong)) << wrong;
  EXPECT_EQ(unbalanced(svg), Strings{});
  EXPECT_EQ(draw({.title = "Loss", .unit = "", .x_name = "step", .curves = {{"train", {}}}}), "");
  // Nothing but values that are not finite.
  EXPECT_EQ(unbalanced(draw({"Loss", "", "step", {{"train", {{1, NAN}}}}, AxisScale::log10})),
            Strings{});
}

// A run's folder with names that would like to be more than text.
const std::string hostile = "<script>alert(1)</script>\"'&";
class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    write_text(in("config.json"), R"({"model": "vit_tiny", "data": "/photos/<i>", "lr": 0.001,)"
                                  R"( "precision": "fp32", "device": "cpu", "classes": ["a"]})");
    write_text(in("metrics.jsonl"),
               R"({"kind":"step","epoch":1,"step":1,"loss":2.5,"lr":0.001,"loss_scale":1})"
               "\n"
               R"({"kind":"step","epoch":1,"step":2,"loss":null,"lr":0.001,"loss_scale":1})"
               "\n"
               R"({"kind":"epoch","epoch":1,"step":2,"train_loss":2.0,"val_loss":1.5,)"
               R"("val_top1":0.25,"lr":0.001,"images_per_second":80,"seconds":3})"
               "\n");
    facts_ = {
        .model = "vit_tiny",
        .data = hostile,
        .device = "cpu",
        .command = "./launcher vit_tiny --data '" + hostile + "'",
        .written = "2026-11-21 12:00 UTC",
        .ending = "step 3: " + hostile,
        .parameters = 1000,
        .processes = 2,
        .updates_per_epoch = 2,
        .steps_end = 4,
        .classes = {hostile, "dog"},
        .memory = {{"weights", 4000}},
        .seconds = {{hostile, 1.5}},
        .forward_nodes = 2,
        .scratch = {{hostile, 0, 256, 0, 1}},
        .evaluated = Evaluated{.step = 2,
                               .epoch = 1,
                               .images = {{0, 0, 3}, {1, 0, 1}},
                               .mistakes = {{hostile, 1, 0, 0.75, "data:image/png;base64,AA"}}},
        .training_pictures = {"data:image/png;base64,AA"}};
  }
  std::string in(const std::string& name) const { return folder_ / name; }
  std::string page() const { return run_page(load_run(folder_.path())); }

  TemporaryFolder folder_;
  RunFacts facts_;
};

TEST_F(PageTest, HasAllPartsAndNothingFromElsewhere) {
  write_text(in("report.json"), to_json(facts_));
  const std::string html = page();
  EXPECT_EQ(unbalanced(html), Strings{});
  for (const char* title :
       {"Curves", "Epochs", "Classes", "Confusion", "Worst mistakes", "What the model sees",
        "Time by kind of operation", "Memory plan", "Scratch memory over a step", "Configuration"})
    EXPECT_TRUE(has(html, "<h2>" + std::string(title) + "</h2>"));
  EXPECT_TRUE(has(html, "Ended by an error: step 3: &lt;script&gt;alert(1)"));
  EXPECT_TRUE(has(html, "1 of 1 dog taken for &lt;script"));
  EXPECT_TRUE(has(html, "25.00%"));
  EXPECT_FALSE(has(html, "<script>alert"));
  EXPECT_FALSE(has(html, "<i>\""));
  for (const char* elsewhere : {"src=\"http", "href", "@import", "url("})
    EXPECT_FALSE(has(html, elsewhere)) << elsewhere;
}

TEST_F(PageTest, MetricsAloneMakeAPage) {
  const std::string html = page();
  EXPECT_EQ(unbalanced(html), Strings{});
  EXPECT_TRUE(has(html, "Logged after 2 steps, 1 epoch."));
  EXPECT_TRUE(has(html, "<h2>Epochs</h2>"));
  EXPECT_FALSE(has(html, "<h2>Classes</h2>"));
}

TEST_F(PageTest, ManyClassesAreListedByTheirWorst) {
  facts_.classes.resize(300, "x");
  for (int k = 2; k < 300; ++k) facts_.evaluated->images.push_back({k, k - 1, 2});
  write_text(in("report.json"), to_json(facts_));
  const std::string html = page();
  EXPECT_TRUE(has(html, "The 200 classes of 300 with the lowest F1."));
  EXPECT_TRUE(has(html, "The pairs of classes that are confused most."));
  EXPECT_FALSE(has(html, "class=\"matrix"));
}

TEST_F(PageTest, ComparedRunsShowWhatDiffers) {
  const TemporaryFolder other;
  write_text(other / "config.json", replaced(contents(in("config.json")), "0.001", "0.5"));
  write_text(other / "metrics.jsonl", contents(in("metrics.jsonl")));
  const std::vector<RunReport> runs{load_run(folder_.path()), load_run(other.path())};
  const std::string html = comparison_page(runs);
  EXPECT_EQ(unbalanced(html), Strings{});
  EXPECT_TRUE(has(html, "2 runs compared"));
  EXPECT_TRUE(has(html, "<th scope=\"row\" >lr</th><td>0.001</td><td>0.5</td>"));
  EXPECT_FALSE(has(html, ">precision</th>"));
}

TEST_F(PageTest, FactsAreReadAsTheyWereWritten) {
  const std::string text = to_json(facts_);
  EXPECT_EQ(to_json(facts_from_json(text, "f")), text);
  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of([&] { facts_from_json(replaced(text, from, to), "f"); });
  };
  EXPECT_TRUE(is_line(error("[1,0,1]", "[2,0,1]"), "f: a number is out of range"));
  EXPECT_TRUE(is_line(error("[1,0,1]", "[1,0]"), "f: a list is too short"));
  EXPECT_TRUE(is_line(error("base64,AA", "base64,A\\\" onload=\\\"x"), "f: a picture is not"));
  EXPECT_TRUE(is_line(error("\"version\":1", "\"version\":7"), "f: its version is not 1"));
  EXPECT_TRUE(is_line(error("\"device\":", "\"divice\":"), "f: 'device' is missing"));
}

TEST_F(PageTest, MetricsAreReadAsTheyGrow) {
  const std::string path = in("metrics.jsonl");
  const std::string text = contents(path), more = R"({"kind":"step","step":3,"loss":1})";
  RunMetrics metrics(path);
  write_text(path, text + more.substr(0, 20));
  metrics.read();
  EXPECT_EQ(metrics.steps.rows(), 2u);
  write_text(path, text + more + "\n");
  metrics.read();
  EXPECT_EQ(metrics.steps.rows(), 3u);
  EXPECT_EQ(metrics.steps.at("step", 2), 3);
  EXPECT_TRUE(std::isnan(metrics.steps.at("loss", 1)));
  EXPECT_TRUE(std::isnan(metrics.steps.at("lr", 2)));
  EXPECT_EQ(metrics.steps.last("lr"), 0.001);
  write_text(path, text + more + "\n{]\n");
  EXPECT_TRUE(is_line(error_of([&] { metrics.read(); }), "metrics.jsonl, line 5"));
}

TEST_F(PageTest, APageAppearsWholeOrNotAtAll) {
  const std::string path = in("report.html");
  write_page(path, page());
  EXPECT_TRUE(is_page(path));
  EXPECT_EQ(names_in(folder_.path()),
            (std::set<std::string>{"config.json", "metrics.jsonl", "report.html"}));
  EXPECT_FALSE(is_page(in("config.json")));
  EXPECT_FALSE(is_page(in("nothing")));

  const SmallDisk disk(in("disk"), "64k");
  if (!disk.mounted()) GTEST_SKIP() << "no tmpfs can be mounted here";
  write_page(in("disk/report.html"), "old");
  EXPECT_TRUE(is_line(
      error_of<WriteError>([&] { write_page(in("disk/report.html"), std::string(1 << 20, 'x')); }),
      "No space left"));
  EXPECT_EQ(contents(in("disk/report.html")), "old");
  EXPECT_EQ(names_in(in("disk")), std::set<std::string>{"report.html"});
}

TEST(DataUri, HoldsAPicture) {
  const std::string begin = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA";
  EXPECT_TRUE(data_uri(black_image(10, 30), 90).starts_with(begin + "AFoAAAAe"));    // 90 x 30
  EXPECT_TRUE(data_uri(black_image(300, 100), 90).starts_with(begin + "AB4AAABa"));  // 30 x 90
  const std::string text = data_uri(black_image(50, 50), 90);                        // as it is
  EXPECT_TRUE(text.starts_with(begin + "ADIAAAAy"));
  EXPECT_EQ((text.size() - std::string("data:image/png;base64,").size()) % 4, 0u);
}

}  // namespace
}  // namespace bv::test
