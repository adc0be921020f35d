// report.html: its data and tables. browser_test.cpp draws it, report_test.cpp runs the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "app/html_report/data_uri.h"
#include "app/html_report/html_report.h"
#include "app/html_report/report_facts.h"
#include "base/files/file_io.h"
#include "tests/app/html_report/run_folder.h"
#include "tests/files.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

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

class PageTest : public testing::Test {
 protected:
  PageTest() { write_run(folder_.path(), facts_); }
  std::string in(const std::string& name) const { return folder_ / name; }
  std::string page() const {
    const RunReport run = load_run(folder_.path());
    return report_page({&run, 1});
  }

  TemporaryFolder folder_;
  Json facts_ = facts_with_hostile_names();
};

TEST_F(PageTest, WhatComesFromOutsideIsNeverMarkup) {
  const std::string html = page();
  EXPECT_EQ(html.find("<script>alert"), html.npos);
  EXPECT_TRUE(has(html, "Ended by an error: step 3: \\u003c/script>\\u003cscript>alert(1)"));
  EXPECT_TRUE(has(html, "<td>&lt;/script&gt;&lt;script&gt;alert(1)"));
  for (const char* elsewhere : {"src=\"http", "href", "@import", "url("})
    EXPECT_FALSE(has(html, elsewhere)) << elsewhere;
}

TEST_F(PageTest, TablesNeedNoScript) {
  const std::string html = page();
  for (const char* part :
       {"<noscript><main><h1>", "<th>train_loss</th>", "<td>1.5</td>",
        "<h3>Classes after epoch 1</h3>", "<td>dog</td><td>0</td><td>0</td><td>0</td><td>1</td>",
        "<td>lr</td><td>0.001</td>", "<td>classes</td><td>[&quot;a&quot;]</td>"})
    EXPECT_TRUE(has(html, part)) << part;
}

TEST_F(PageTest, MetricsAloneMakeAPage) {
  std::filesystem::remove(in("report.json"));
  const std::string html = page();
  EXPECT_TRUE(has(html, "Logged after 2 steps, 1 epoch."));
  EXPECT_TRUE(has(html, "<h3>Epochs</h3>"));
  EXPECT_FALSE(has(html, "<h3>Classes after"));
  EXPECT_TRUE(has(html, "\"report\":null"));
}

TEST_F(PageTest, RunsOfOneNameAreToldApartByTheirPaths) {
  const TemporaryFolder other;
  write_run(other / "run", facts_);
  write_run(folder_ / "run", facts_);
  const std::vector<RunReport> runs{load_run(folder_ / "run"), load_run(other / "run")};
  const std::string html = report_page(runs);
  EXPECT_TRUE(has(html, "<title>2 runs compared</title>"));
  EXPECT_TRUE(has(html, "\"label\":\"" + (other / "run") + "\""));
  EXPECT_FALSE(has(html, "base64,AA"));  // pictures aren't compared
}

TEST_F(PageTest, FactsOfAnotherFormAreRefused) {
  const std::string text = to_line(facts_);
  EXPECT_EQ(to_line(parse_facts(text, "f")), text);
  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of([&] { parse_facts(replaced(text, from, to), "f"); });
  };
  EXPECT_EQ(error("0.75", "null"), "no error");  // a probability that is NaN
  EXPECT_TRUE(is_line(error("[1,0,1]", "[2,0,1]"), "f: 'images' has a malformed row"));
  EXPECT_TRUE(is_line(error("[1,0,1]", "[1,0]"), "f: 'images' has a malformed row"));
  EXPECT_TRUE(is_line(error("[\"weights\",4000]", "[4000]"), "f: 'memory' has a malformed row"));
  EXPECT_TRUE(is_line(error("\"version\":1", "\"version\":7"), "f: its version is not 1"));
  EXPECT_TRUE(is_line(error("\"device\":", "\"divice\":"), "f: 'device' is missing"));
  EXPECT_TRUE(is_line(error("\"dog\"]", "7]"), "f: 'classes' is not a list of strings"));
  EXPECT_TRUE(
      is_line(error_of([&] { parse_facts(text.substr(0, 300), "f"); }), "this is not JSON"));
}

// Calls visit(damaged, damage) for copies of a JSON value with one damage each: an object's member
// is removed, or a value at any depth is replaced by one of another kind.
template <class F>
void for_each_damage(const Json& whole, F visit) {
  const Json flat = whole.flatten();
  std::set<std::string> places;
  for (const auto& [place, value] : flat.items())
    for (std::string path = place; !path.empty(); path.resize(path.rfind('/'))) places.insert(path);
  for (const std::string& place : places) {
    const Json::json_pointer pointer(place);
    Json damaged = whole;
    if (Json& parent = damaged[pointer.parent_pointer()]; parent.is_object()) {
      parent.erase(pointer.back());
      visit(damaged, place + " removed");
    }
    for (const char* other : {"null", "true", "-7", "1e300", "1000000000", "18446744073709551615",
                              "\"x\"", "[]", "[[]]", "{}"}) {
      damaged = whole;
      damaged[pointer] = Json::parse(other);
      visit(damaged, place + " = " + other);
    }
  }
}

TEST_F(PageTest, ADamagedFileGivesAPageOrAnErrorLine) {
  int pages = 0, errors = 0;
  const auto draw = [&](const std::string& damage) {
    try {
      page();
      ++pages;
    } catch (const UserError& e) {
      EXPECT_TRUE(is_line(e.what(), folder_.path())) << damage;
      ++errors;
    } catch (const std::exception& e) {
      ADD_FAILURE() << damage << ": " << e.what();
    }
  };
  const std::string restart = to_line({{"kind", "restart"},
                                       {"step", 1},
                                       {"restart", 1},
                                       {"of", 2},
                                       {"cause", hostile},
                                       {"ended_in_step", 2},
                                       {"processes", 1},
                                       {"processes_before", 2}});
  write_text(in("metrics.jsonl"), contents(in("metrics.jsonl")) + restart + "\n");
  for (const char* file : {"report.json", "config.json", "metrics.jsonl"}) {
    const std::string whole = contents(in(file));
    for (size_t begin = 0, end = 0; begin < whole.size(); begin = end + 1) {
      end = file == std::string("metrics.jsonl") ? whole.find('\n', begin) : whole.size();
      const Json line = Json::parse(whole.substr(begin, end - begin));
      for_each_damage(line, [&](const Json& damaged, const std::string& damage) {
        std::string text = whole;
        write_text(in(file), text.replace(begin, end - begin, to_line(damaged)));
        draw(file + (": " + damage));
      });
    }
    write_text(in(file), whole);
  }
  EXPECT_GT(pages, 100);
  EXPECT_GT(errors, 100);
}

TEST_F(PageTest, MetricsAreReadAsTheyGrow) {
  const std::string path = in("metrics.jsonl");
  const std::string text = contents(path), more = R"({"kind":"step","step":3,"loss":1})";
  RunMetrics metrics(path);
  write_text(path, text + more.substr(0, 20));
  metrics.read();
  EXPECT_EQ(metrics.curves()["loss"], Json::parse("[[1,2.5],[2,null]]"));
  write_text(path, text + more + "\n");
  metrics.read();
  EXPECT_EQ(metrics.curves()["loss"], Json::parse("[[1,2.5],[2,null],[3,1]]"));
  EXPECT_EQ(metrics.curves()["lr"], Json::parse("[[1,0.001],[2,0.001]]"));
  EXPECT_EQ(metrics.last_step(), 3);
  EXPECT_EQ(metrics.epochs().size(), 1u);
  write_text(path, text + more + "\n{]\n");
  EXPECT_TRUE(is_line(error_of([&] { metrics.read(); }), "metrics.jsonl, line 5"));
}

TEST_F(PageTest, APageAppearsWholeOrNotAtAll) {
  const std::string path = in("report.html");
  write_page(path, page());
  EXPECT_TRUE(is_page(path));
  EXPECT_EQ(names_in(folder_.path()),
            (std::set<std::string>{"config.json", "metrics.jsonl", "report.html", "report.json"}));
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
