// Antialiased resizing of 8-bit RGB, as PIL and torchvision resize photos.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace bv {

// A part of an image, in pixels.
struct Box {
  double top = 0, left = 0, height = 0, width = 0;
};

// The filter: a triangle, or Keys's cubic with a = -1/2.
enum class Interpolation : uint8_t { bilinear, bicubic };

// The weights of the input pixels in one output row or column: a filter as wide as the scale.
struct Taps {
  int begin = 0;
  std::vector<float> weights;  // sum to 1
};
std::vector<Taps> filter_taps(int input_size, double begin, double length, int output_size,
                              Interpolation = Interpolation::bilinear);

// Keeps its scratch memory between images; one per thread.
class Resizer {
 public:
  // out [height, width, 3] = the box of `image`. The filter may reach pixels around the box.
  void run(const Image& image, const Box& box, int height, int width, uint8_t* out,
           Interpolation = Interpolation::bilinear);

 private:
  std::vector<float> row_;
  std::vector<uint8_t> bytes_;  // a row of the output, and one more
};

}  // namespace bv
