// One lattice of equal bytes: each row trains a point, and the run that it must be equal to, near
// or far from. The models are those of models/ with fewer blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "base/json.h"
#include "engine/files/safetensors.h"
#include "tests/devices.h"
#include "tests/emulated_bf16.h"
#include "tests/lattice/points.h"
#include "tests/lattice/rows.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

// Times, and memory use, which differ between equal runs.
bool is_measured(const std::string& member) {
  return member == "time" || member == "seconds" || member.ends_with("_seconds") ||
         member.ends_with("_per_second") || member.ends_with("_bytes");
}

// The lines of a run's metrics.jsonl, but for what is measured: those of all steps, and the last of
// each epoch, since an interrupted epoch has two.
std::map<std::string, std::string> figures(const std::string& run, bool with_policy) {
  std::map<std::string, std::string> lines;
  std::istringstream in(contents(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    Json kept = Json::object();
    const Json all = parse_json_object(line, run);
    for (const auto& [name, value] : all.items())
      if (!is_measured(name) && (with_policy || !name.starts_with("precision"))) kept[name] = value;
    const std::string kind = all.value("kind", "");
    std::string& known = lines[kind + " " + scalar_text(all[kind])];
    known = (kind == "epoch" ? "" : known) + to_line(kept);
  }
  return lines;
}

// A checkpoint's counters, sums, loss scale and best: its state but for what is in other files, and
// for what a point's choices may change in it.
std::string state(const std::string& run, const Point& p) {
  Json json = parse_json_object(contents(run + "/last/state.json"), run);
  const auto leave_out = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) json.erase(name);
  };
  leave_out({"options", "files", "crc32c"});
  if (!p.has("amp")) leave_out({"precision"});
  if (p.has("ampnone")) leave_out({"loss_scale"});  // kept for an epoch in 16 bits
  // An interrupted run is evaluated at its stops, too.
  if (p.has("resume") || p.has("moves")) leave_out({"best_top1", "best_step", "best_loss"});
  return json.dump(1);
}

using Tensors = std::map<std::string, HostTensor>;

// The norm of all tensors' differences, relative to that of b's.
double relative_distance(const Tensors& a, const Tensors& b) {
  double difference = 0, size = 0;
  for (const auto& [name, tensor] : b)
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      difference += std::pow(a.at(name).data.at(i) - tensor.data[i], 2);
      size += std::pow(tensor.data[i], 2);
    }
  return std::sqrt(difference / size);
}

class Lattice : public ProgramTest {
 protected:
  // A run of the point, with its interruptions.
  void run_point(const Point& p, const std::string& out) const {
    const std::string first = words_of(p) + " --out " + out;
    if (!p.has("resume") && !p.has("moves")) return train_once(first);
    // An epoch has two updates, so odd steps are in the middle of one.
    const int end = 2 * p.epochs;
    int step = p.has("moves") ? 1 : end - 1;
    train_once(first + " --steps " + std::to_string(step));
    for (bool as_base = true; step < end; as_base = !as_base) {
      step = std::min(step + 2, end);
      const std::string form = p.has("moves") ? form_of(as_base ? base_of(p) : p) : "";
      train_once("--resume " + out + " --steps " + std::to_string(step) + " " + form);
    }
  }
  void train_once(const std::string& words) const { go(words, options_); }

  void expect_equal(const Point& p, const std::string& run, const std::string& as) const {
    const bool with_policy = p.has("amp");
    for (const char* name : {"weights", "state", "ema"}) {
      const std::string file = std::string("/last/") + name + ".safetensors";
      const std::string bytes = contents(in(run) + file);
      EXPECT_FALSE(bytes.empty()) << file;
      EXPECT_TRUE(bytes == contents(in(as) + file)) << file << " differs";
    }
    EXPECT_EQ(state(in(run), p), state(in(as), p));
    const auto got = figures(in(run), with_policy), want = figures(in(as), with_policy);
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [line, text] : want)
      EXPECT_EQ(got.contains(line) ? got.at(line) : "none", text);
  }

  // How far apart two runs' losses are, relative to the second's; at most 1e9.
  double distance(const std::string& run, const std::string& from) const {
    const auto got = losses(in(run)), want = losses(in(from));
    if (got.size() != want.size() || want.empty()) return 1e9;
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double d = std::abs(got[i] - want[i]) / want[i];
      most = d <= 1e9 ? std::max(most, d) : 1e9;  // NaN too
    }
    return most;
  }
  void expect_near(const std::string& run, const std::string& from, double tolerance) const {
    EXPECT_LE(distance(run, from), tolerance);
    const std::string weights = "/last/weights.safetensors", average = "/last/ema.safetensors";
    EXPECT_FALSE(contents(in(run) + weights) == contents(in(from) + weights))
        << "the same bytes: the choice had no effect";
    EXPECT_LE(relative_distance(read_safetensors(in(run) + average).tensors,
                                read_safetensors(in(from) + average).tensors),
              10 * tolerance);
  }

  ProgramOptions options_;
};

class LatticeRow : public Lattice {
 public:
  explicit LatticeRow(const Row& row) : row_(row), point_(point_of(row.name)) {}

 private:
  void SetUp() override {
    if (row_.is_long && !std::getenv("BAREVISION_TEST_ALL")) GTEST_SKIP() << "in make test-all";
    if (point_.device == "simt" && !is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
    if (point_.device == "cuda")
      if (const std::string why = lack_of(DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    if (point_.device == "cpu" && point_.precision == "bf16")
      if (const std::string why = emulated_.emplace().lack(); !why.empty()) GTEST_SKIP() << why;
    if (point_.has("hopper")) options_.environment = {{"SIMT_ARCH", "sm_90"}};
    make_cifar(in("cifar"), training_images(point_), 6);
    const std::string depth = "\"depth\": ",
                      blocks = point_.stages > 2 || point_.has("chunks2") ? "4" : "2";
    if (point_.model.starts_with("vit"))
      change_model(point_.model, depth + (point_.model == "vit_large" ? "24" : "12"),
                   depth + blocks);
    else
      change_model(point_.model, "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  }
  void TestBody() override {
    const bool equal = row_.promise == Promise::equal;
    const Point other = equal ? base_of(point_) : reference_of(point_);
    SCOPED_TRACE(words_of(point_) + "\nand " + words_of(other));
    run_point(other, "base");
    run_point(point_, "point");
    if (HasFailure()) return;
    if (equal) return expect_equal(point_, "point", "base");
    if (row_.promise == Promise::near) return expect_near("point", "base", row_.tolerance);
    const double far = distance("point", "base");
    EXPECT_GT(far, row_.tolerance);
    EXPECT_LT(far, 1) << "no longer a training";
  }

  const Row row_;
  const Point point_;
  std::optional<EmulatedBf16> emulated_;
};

// The comparison sees another seed.
TEST_F(Lattice, AnotherSeedIsFar) {
  const Point p = point_of("cpu_vit_tiny_fp32");
  make_cifar(in("cifar"), training_images(p), 6);
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 1");
  const std::string words = words_of(p);
  train_once(words + " --out base");
  train_once(words + " --seed 1 --out point");
  EXPECT_GT(distance("point", "base"), .01);
  EXPECT_FALSE(contents(in("point/last/weights.safetensors")) ==
               contents(in("base/last/weights.safetensors")));
  EXPECT_NE(figures(in("point"), true), figures(in("base"), true));
}

void add_row(const Row& row) {
  constexpr const char* words[] = {"Equal/", "Near/", "Far/"};
  const std::string name = words[static_cast<size_t>(row.promise)] + row.name;
  testing::RegisterTest("Lattice", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [row]() -> Lattice* { return new LatticeRow(row); });
}

// Rows of one process of the stand-in run on a GPU, too, if there is one.
const bool added = [] {
  for (const Row& row : lattice_rows()) {
    add_row(row);
    const Point p = point_of(row.name);
    if (p.device != "simt" || p.processes > 1 || p.has("hopper")) continue;
    Row on_gpu = row;
    on_gpu.name.replace(0, p.device.size(), "cuda");
    add_row(on_gpu);
  }
  return true;
}();

}  // namespace
}  // namespace bv::test
