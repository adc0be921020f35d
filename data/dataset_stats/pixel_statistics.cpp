#include "data/dataset_stats/pixel_statistics.h"

#include <cerrno>
#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/machine_error.h"
#include "base/threads.h"

namespace bv {
namespace {

struct Sums {
  uint64_t pixels = 0;
  std::array<uint64_t, 3> values{}, squares{};

  void operator+=(const Sums& other) {
    pixels += other.pixels;
    for (int c = 0; c < 3; ++c) values[c] += other.values[c], squares[c] += other.squares[c];
  }
  double mean(int c) const { return double(values[c]) / double(pixels) / 255; }
  // less: 1 for the sample deviation (n - 1), 0 for the population's (n). `difference` is exact.
  double deviation(int c, uint64_t less) const {
    if (pixels <= less) return 0;
    using Wide = unsigned __int128;
    const Wide difference = Wide{pixels} * squares[c] - Wide{values[c]} * values[c];
    return std::sqrt(double(difference) / double(pixels) / double(pixels - less)) / 255;
  }
};

Sums sums_of(const Image& image) {
  Sums sums{.pixels = image.pixels.size() / 3};
  for (size_t i = 0; i < image.pixels.size(); i += 3)
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t value = image.pixels[i + c];
      sums.values[c] += value;
      sums.squares[c] += value * value;
    }
  return sums;
}

PixelStatistics add_up(const std::vector<Sums>& images) {
  PixelStatistics result{.images = static_cast<int64_t>(images.size())};
  auto& [mean, deviation] = result.of_each_image;
  Sums all;
  for (const Sums& image : images) {
    all += image;
    for (int c = 0; c < 3; ++c) mean[c] += image.mean(c), deviation[c] += image.deviation(c, 1);
  }
  for (int c = 0; c < 3; ++c) {
    mean[c] /= double(images.size()), deviation[c] /= double(images.size());
    result.of_all_pixels.mean[c] = all.mean(c);
    result.of_all_pixels.deviation[c] = all.deviation(c, 0);
  }
  result.pixels = static_cast<int64_t>(all.pixels);
  return result;
}

}  // namespace

PixelStatistics pixel_statistics(const Dataset& data, int threads,
                                 const std::function<void(int64_t)>& progress,
                                 std::vector<std::string>* skipped) {
  std::vector<Sums> images(data.size());
  std::mutex mutex;
  std::map<int64_t, std::string> bad;
  const auto look = [&](int64_t i) {
    try {
      images[i] = sums_of(data.image(i, 0));
    } catch (const BadImage& e) {
      const std::lock_guard lock(mutex);
      bad[i] = e.what();
    } catch (const std::bad_alloc&) {
      throw MachineError(data.name(i), ENOMEM);
    }
  };
  in_threads(data.size(), threads, look, std::chrono::milliseconds(100), progress);
  if (skipped && bad.size() < images.size()) {
    for (const auto& [i, reason] : bad)
      skipped->push_back("skipped bad image " + data.name(i) + ": " + reason);
    std::erase_if(images, [](const Sums& sums) { return sums.pixels == 0; });
  }
  if (bad.empty() || (skipped && !skipped->empty())) return add_up(images);
  const auto& [first, why] = *bad.begin();
  throw DataError(
      data.name(first) + ": " + why +
      (bad.size() > 1 ? ", and " + std::to_string(bad.size() - 1) + " more can't be decoded" : "") +
      " (data check lists such files)");
}

}  // namespace bv
