// Warnings of runs that will hardly train well, though every option is valid: too few updates,
// pixels normalised by other images' numbers, a rate that rises again. Each finding is a line,
// `warning: WHAT: WHY; ADVICE`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset_stats/pixel_statistics.h"
#include "engine/setup/setup.h"

namespace bv {

struct Finding {
  std::string what, why, advice;  // advice: "use --batch 16"
};
std::string line_of(const Finding&);

// Some of the training images, as their files have them.
struct Sample {
  PixelStatistics pixels;
  double side = 0;  // the shorter one, on average
};
// At most 256, evenly spread; pixels.images is 0 if no check needs them or one can't be decoded.
Sample sample_images(const Setup&, int threads);

// Everything that the checks find; depends on its arguments alone.
std::vector<Finding> lint(const Setup&, const Sample&);

// The findings of a new run's rank 0 become setup.findings. Throws UserError where --strict asks
// for it, after printing them.
void say_findings(Setup&, int threads);

}  // namespace bv
