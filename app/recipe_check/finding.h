// A warning of the recipe check, and the sample of images that its checks look at.
#pragma once
#include <string>

#include "data/dataset_stats/pixel_statistics.h"

namespace bv {

struct Finding {
  std::string what, why, advice;  // advice: "use --batch 16"
};
std::string line_of(const Finding&);

// A sample of the training images, before augmentation.
struct Sample {
  PixelStatistics pixels;
  double side = 0;  // mean of the shorter sides
};

}  // namespace bv
