// Mean and deviation of a data set's pixels, by channel, with values in 0-1: for --mean and --std.
//   of each image    for an image of n pixels x, mean = sum x / n and, as in torch.std,
//                    deviation = sqrt(sum (x - mean)^2 / (n - 1)); both averaged over the images,
//                    whatever their sizes (the deviation of a single pixel is 0)
//   of all pixels    over the pixels of all images together
// Images are whole and upright, as decoded, alpha composited over white. The sums of an image are
// integers and images are added in order, so the result doesn't depend on the number of threads.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace bv {

struct ChannelStatistics {
  std::array<double, 3> mean{}, deviation{};
};
struct PixelStatistics {
  int64_t images = 0, pixels = 0;
  ChannelStatistics of_each_image, of_all_pixels;
};

// Throws DataError that names the first image that can't be decoded and the number of others. If
// `skipped` is given, leaves such images out instead and adds a line for each.
PixelStatistics pixel_statistics(const Dataset&, int threads,
                                 const std::function<void(int64_t images)>& progress,
                                 std::vector<std::string>* skipped = nullptr);

}  // namespace bv
