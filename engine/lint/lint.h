// What is wrong with a run before its first step, though every option is allowed: too few updates,
// pixels normalised by other images' numbers, a rate that rises again. Each finding is a line,
// `recipe: WHAT (WHY; HOW to change)`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/survey/pixel_statistics.h"
#include "engine/setup/setup.h"

namespace bv {

struct Finding {
  std::string what, why, change;  // change: flags, or what else helps
};
std::string line_of(const Finding&);

// Some of the training images, as their files have them.
struct Sample {
  PixelStatistics pixels;
  double side = 0;  // the shorter one, on average
};
// 256 of them, evenly spread; none (images: 0) where no check asks for them or one can't be decoded.
Sample sample_images(const Setup&, int threads);

// Everything that the checks find; depends on its arguments alone.
std::vector<Finding> lint(const Setup&, const Sample&);

// The findings of a new run's rank 0 become setup.findings. Throws UserError where --strict asks
// for it, after printing them.
void say_findings(Setup&, int threads);

}  // namespace bv
