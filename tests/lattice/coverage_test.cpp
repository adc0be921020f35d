// The lattice's rows have every two values of these facets together, except for those that the
// program refuses or that have no effect together.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels/devices/devices.h"
#include "tests/lattice/points.h"
#include "tests/lattice/rows.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

struct Facet {
  std::string name;
  std::vector<std::string> values;
};
const Facet facets[] = {
    {"device", {"cpu", "simt"}},
    {"model", {"vit_tiny", "resnet34"}},
    {"precision", {"fp32", "fp16", "bf16"}},
    {"kernels", {"auto", "plain", "hopper"}},
    {"n", {"1", "2", "4"}},
    {"zero", {"off", "on"}},
    {"shards", {"off", "4"}},
    {"pipeline", {"1", "2"}},
    {"amp", {"off", "on"}},
    {"graphs", {"on", "off"}},
    {"resume", {"none", "same", "moves"}},
};

using Pair = std::set<std::string>;

// "facet=value" of each facet.
std::vector<std::string> values_of(const Point& p) {
  std::map<std::string, std::string> values{{"device", p.device},
                                            {"model", p.model},
                                            {"precision", p.precision},
                                            {"n", std::to_string(p.processes)},
                                            {"pipeline", std::to_string(p.stages)}};
  const std::map<std::string_view, std::string> of_choice{
      {"plain", "plain"}, {"hopper", "hopper"}, {"zero", "on"},    {"shards4", "4"},
      {"amp", "on"},      {"ampall", "on"},     {"ampnone", "on"}, {"nograph", "off"},
      {"resume", "same"}, {"moves", "moves"}};
  for (const Facet& facet : facets) values.try_emplace(facet.name, facet.values[0]);
  for (const Choice* c : p.chosen)
    if (const auto found = of_choice.find(c->name); found != of_choice.end())
      values[std::string(c->facet)] = found->second;
  std::vector<std::string> texts;
  for (const Facet& facet : facets) texts.push_back(facet.name + "=" + values[facet.name]);
  return texts;
}

// The row that has two values. Rows in make test-all count only for the kernels for sm_90, which
// are slow on the stand-in.
std::map<Pair, std::string> covered() {
  const std::string slow = "kernels=hopper";
  std::map<Pair, std::string> rows;
  for (const Row& row : lattice_rows()) {
    if (row.promise != Promise::equal) continue;
    const std::vector<std::string> values = values_of(point_of(row.name));
    for (const std::string& a : values)
      for (const std::string& b : values)
        if (a != b && (!row.is_long || a == slow || b == slow))
          rows.try_emplace(Pair{a, b}, row.name);
  }
  return rows;
}

TEST(LatticeTable, HasEveryTwoValuesTogether) {
  const std::map<Pair, std::string> rows = covered();
  std::set<Pair> excluded;
  for (const Excluded& e : excluded_pairs()) excluded.insert({e.a, e.b});
  size_t pairs = 0;
  for (const Facet& f : facets)
    for (const Facet& g : facets)
      for (const std::string& x : f.values)
        for (const std::string& y : g.values) {
          if (f.name >= g.name) continue;
          const std::string a = f.name + "=" + x, b = g.name + "=" + y;
          ++pairs;
          const auto found = rows.find({a, b});
          if (!excluded.contains({a, b}))
            EXPECT_NE(found, rows.end()) << "no row has " << a << " and " << b;
          else
            EXPECT_EQ(found, rows.end()) << found->second << " has the excluded " << a << ", " << b;
        }
  EXPECT_EQ(pairs, 306u);
}

TEST(LatticeTable, NamesEachRowOnce) {
  std::set<std::string> names;
  for (const Row& row : lattice_rows()) {
    EXPECT_TRUE(names.insert(std::to_string(int(row.promise)) + row.name).second) << row.name;
    EXPECT_EQ(row.promise == Promise::equal, row.tolerance == 0) << row.name;
  }
}

TEST(LatticeTable, KnowsItsChoicesOnly) {
  for (const char* name : {"cpu_vit_tiny", "tpu_vit_tiny_fp32", "cpu_fp32", "cpu_vit_tiny_fp32_n",
                           "cpu_vit_tiny_fp32_zeros", "cpu_vit_tiny_fp32_n2_pipeline3"})
    EXPECT_THROW(point_of(name), std::invalid_argument) << name;
  for (const Choice& c : choices()) {
    const Point p = point_of("cpu_vit_tiny_fp32_" + std::string(c.name));
    EXPECT_TRUE(p.has(c.name));
    EXPECT_EQ(base_of(p).has(c.name), c.changes != Changes::nothing) << c.name;
    EXPECT_EQ(reference_of(p).has(c.name), c.changes == Changes::result) << c.name;
  }
}

class LatticeExclusions : public ProgramTest {};

TEST_F(LatticeExclusions, AreRefusedOrHaveNoEffect) {
  for (const Excluded& e : excluded_pairs()) {
    if (e.words.find("simt") != std::string::npos && !is_built(DeviceKind::simt)) continue;
    const Finished end =
        run_program(folder_.path(), e.words + " --plan", {.environment = {{"SIMT_ARCH", "sm_90"}}});
    EXPECT_EQ(end.code, e.message.empty() ? 0 : 2) << e.words << end.errors;
    EXPECT_TRUE(has(end.errors, e.message)) << e.words;
  }
}

}  // namespace
}  // namespace bv::test
