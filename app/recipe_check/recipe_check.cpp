#include "app/recipe_check/recipe_check.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "app/recipe_check/checks.h"
#include "base/error.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr int64_t max_sampled = 256;

// At most 256 images of a data set, evenly spread. Sums up their shorter sides.
class Spread final : public Dataset {
 public:
  explicit Spread(const Dataset& all) : all_(all) {}
  int64_t size() const override { return std::min(all_.size(), max_sampled); }
  int label(int64_t i) const override { return all_.label(at(i)); }
  Image image(int64_t i, int at_least) const override {
    Image image = all_.image(at(i), at_least);
    sides_ += std::min(image.height, image.width);
    return image;
  }
  std::string name(int64_t i) const override { return all_.name(at(i)); }
  double side() const { return double(sides_) / double(size()); }

 private:
  int64_t at(int64_t i) const { return i * all_.size() / size(); }

  const Dataset& all_;
  mutable std::atomic<int64_t> sides_ = 0;
};

}  // namespace

std::string line_of(const Finding& f) {
  return as_called("warning: " + f.what + ": " + f.why + "; " + f.advice);
}

Sample sample_images(const Setup& s, int threads) try {
  if (!needs_sample(s)) return {};
  const Spread some(*s.data.train);
  PixelStatistics pixels = pixel_statistics(some, threads, [](int64_t) {});
  return {std::move(pixels), some.side()};
} catch (const DataError&) {  // an image can't be decoded: training reports it
  return {};
}

std::vector<Finding> lint(const Setup& s, const Sample& sample) {
  Findings findings;
  // Built-in and synthetic images are for trials, in which few images are no mistake.
  const bool real = s.data.kind == DataKind::photos || s.data.kind == DataKind::cifar;
  if (real) {
    check_files(s, findings);
    check_updates(s, findings);
    check_left_out(s, findings);
    check_remainder(s, findings);
    check_rate(s, findings);
    check_normalising(s, sample, findings);
    check_scales(s, sample, findings);
    check_patches(s, enough_patches, findings);
    check_validation(s, findings);
    check_own_validation(s, findings);
  }
  if (!real) check_patches(s, 2, findings);  // one patch is a mistake on any images
  check_zero_rate(s, findings);
  check_sgd(s, findings);
  check_warmup(s, findings);
  check_pairs(s, findings);
  check_batch_norm(s, findings);
  check_rises(s, findings);
  check_end(s, findings);
  check_milestones(s, findings);
  check_precision(s, findings);
  check_policy(s, findings);
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
    throw UserError("--strict: nothing is trained, because of the warnings above");
}

}  // namespace bv
