#include "engine/lint/lint.h"

#include <algorithm>
#include <utility>

#include "data/survey/threads.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/lint/checks.h"
#include "kernels/comm/rank_barrier.h"

namespace bv {

namespace {

constexpr int64_t most_sampled = 256;

// Some images of a data set, as one.
class Every final : public Dataset {
 public:
  Every(const Dataset& all, std::vector<int64_t> which) : all_(all), which_(std::move(which)) {}
  int64_t size() const override { return static_cast<int64_t>(which_.size()); }
  int label(int64_t index) const override { return all_.label(which_[index]); }
  Image image(int64_t index, int at_least) const override {
    return all_.image(which_[index], at_least);
  }
  std::string name(int64_t index) const override { return all_.name(which_[index]); }

 private:
  const Dataset& all_;
  std::vector<int64_t> which_;
};

}  // namespace

std::string line_of(const Finding& f) {
  return "recipe: " + f.what + " (" + f.why + "; " + f.change + " to change)";
}

Sample sample_images(const Setup& s, int threads) {
  if (!needs_sample(s)) return {};
  const int64_t all = s.data.train->size(), count = std::min(all, most_sampled);
  std::vector<int64_t> sides(count);
  in_threads(
      count, threads,
      [&](int64_t i) {
        try {
          const Image image = s.data.train->image(i * all / count, 0);
          sides[i] = std::min(image.height, image.width);
        } catch (const BadImage&) {
        }
      },
      std::chrono::milliseconds(100), [](int64_t) {});
  std::vector<int64_t> good;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (sides[i] == 0) continue;
    good.push_back(i * all / count);
    sum += sides[i];
  }
  if (good.empty()) return {};
  const double side = double(sum) / double(good.size());
  return {pixel_statistics(Every(*s.data.train, std::move(good)), threads, [](int64_t) {}), side};
}

std::vector<Finding> lint(const Setup& s, const Sample& sample) {
  Findings findings;
  // Drawn and random images are for trying things out: few of them are meant.
  const bool real = s.data.kind == DataKind::photos || s.data.kind == DataKind::cifar;
  if (real) {
    check_files(s, findings);
    check_updates(s, findings);
    check_remainder(s, findings);
    check_rate(s, findings);
    check_normalising(s, sample, findings);
    check_scales(s, sample, findings);
  }
  check_pairs(s, findings);
  check_rises(s, findings);
  check_end(s, findings);
  check_milestones(s, findings);
  check_precision(s, findings);
  return findings;
}

void say_findings(Setup& s, int threads) {
  if (s.checkpoint) return;
  const std::vector<Finding> findings = lint(s, sample_images(s, threads));
  for (const Finding& f : findings) {
    if (s.options.strict)
      print_error_line(printable(line_of(f), std::string::npos));
    else
      s.findings.push_back(line_of(f));
  }
  if (s.options.strict && !findings.empty())
    throw UserError("--strict: nothing is trained, for the reason above");
}

}  // namespace bv
