// Images per second on one thread: for decoding, for resizing, and for both as in evaluation (the
// middle crop) and in training (random crops, by the loader).
//   build/loading FOLDER SIZE SECONDS
// Run by bench/loading, alternating with Pillow and PyTorch. Also one epoch of the loader, for
// bench/records:
//   build/loading epoch PATH SIZE WORKERS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/stop_signals.h"
#include "data/dataset.h"
#include "data/image/resize.h"
#include "data/loader.h"
#include "data/prepare.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Calls work(i) for i = 0, 1, ... and returns the number of calls per second.
template <class Work>
double rate(double seconds, Work work) {
  const auto begin = Clock::now();
  for (int64_t i = 0;; ++i) {
    const double elapsed = since(begin);
    if (elapsed >= seconds) return static_cast<double>(i) / elapsed;
    work(i);
  }
}

// The largest centred square of a picture, which all the compared programs resize.
Box centred_square(const Image& image) {
  const int side = std::min(image.height, image.width);
  return {.top = (image.height - side) / 2.0,
          .left = (image.width - side) / 2.0,
          .height = double(side),
          .width = double(side)};
}

void by_kind(const std::string& folder, int size, double seconds) {
  const DataSets data = open_dataset({.path = folder, .val_fraction = 0.1});
  const Dataset& images = *data.train;
  const auto decode = [&](int64_t i, int at_least) {
    return images.image(i % images.size(), at_least);
  };
  const double decoding = rate(seconds, [&](int64_t i) { decode(i, 0); });

  std::vector<Image> some;
  for (int64_t i = 0; i < 32; ++i) some.push_back(decode(i, 0));
  Resizer resizer;
  std::vector<uint8_t> out(3 * size_t(size) * size_t(size));
  const double resizing = rate(seconds, [&](int64_t i) {
    const Image& image = some[size_t(i) % some.size()];
    resizer.run(image, centred_square(image), size, size, out.data());
  });

  LoaderOptions options{.kind = data.kind, .image_size = size, .local_batch = 16};
  Preprocessor middle(images, options, false);
  Crop crop;
  const double evaluating = rate(seconds, [&](int64_t i) {
    middle.run(i % images.size(), 0, resizer, {.pixels = out.data(), .crop = crop, .ops = {}});
  });

  options.crop = {.train = TrainCrop::random_resized, .hflip = 0.5};
  Loader loader(images, options, true);
  loader.start(0, 0);
  loader.next();
  const double training = options.local_batch * rate(seconds, [&](int64_t) { loader.next(); });
  const Json rates = {
      {"decode", decoding}, {"resize", resizing}, {"middle", evaluating}, {"crop", training}};
  std::puts(to_line(rates).c_str());
}

void epoch(const std::string& path, int size, int workers) {
  const auto begin = Clock::now();
  const DataSets data = open_dataset({.path = path, .val_fraction = 0});
  const double opened = since(begin);
  constexpr int batch = 16;
  Loader loader(*data.train,
                {.kind = data.kind, .image_size = size, .local_batch = batch, .workers = workers},
                true);
  const auto start = Clock::now();
  loader.start(0, 0);
  const int64_t batches = loader.batches_per_epoch();
  for (int64_t k = 0; k < batches; ++k) loader.next();
  const int64_t images = batches * batch;
  const double rate = double(images) / since(start);
  std::puts(to_line({{"open", opened}, {"images", images}, {"load", rate}}).c_str());
}

}  // namespace
}  // namespace bv

int main(int argc, char** argv) try {
  bv::hold_stop_signals();
  bv::end_on_stop_signals();
  if (argc == 4) {
    bv::by_kind(argv[1], std::atoi(argv[2]), std::atof(argv[3]));
  } else if (argc == 5 && std::string(argv[1]) == "epoch") {
    bv::epoch(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  } else {
    std::fprintf(stderr, "usage: %s FOLDER SIZE SECONDS | epoch PATH SIZE WORKERS\n", argv[0]);
    return 2;
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "loading: %s\n", e.what());
  return 2;
}
