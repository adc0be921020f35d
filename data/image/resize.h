// Antialiased resizing of 8-bit RGB, like PIL's and torchvision's.
#pragma once
#include <cstdint>
#include <vector>

#include "data/image/image.h"

namespace bv {

// The filter: a triangle, or Keys's cubic with a = -1/2.
enum class Interpolation : uint8_t { bilinear, bicubic };

// The weights of the input pixels in one output row or column; the filter widens with the scale.
struct Taps {
  int begin = 0;
  std::vector<float> weights;  // sum to 1
};
std::vector<Taps> filter_taps(int input_size, double begin, double length, int output_size,
                              Interpolation = Interpolation::bilinear);

// The part of the image that is read when its box is resized to [height, width]. May extend beyond
// the image.
Box pixels_read(const Box& box, int height, int width, Interpolation);

// Keeps its scratch memory between images; one per thread.
class Resizer {
 public:
  // out [height, width, 3] = the box of `image`, resized. The filter may read around the box.
  void run(const Image& image, const Box& box, int height, int width, uint8_t* out,
           Interpolation = Interpolation::bilinear);
  // The same for a view, which must hold pixels_read(); the box is in the image's pixels.
  void run(const View& view, const Box& box, int height, int width, uint8_t* out,
           Interpolation = Interpolation::bilinear);

 private:
  void run(const Image& pixels, const Region& at, int whole_height, int whole_width, const Box& box,
           int height, int width, uint8_t* out, Interpolation);

  std::vector<float> row_;
  std::vector<uint8_t> bytes_;  // a row of the output, and one byte more
};

}  // namespace bv
