// Random images in memory, for measuring speed without a disk or a decoder.
#include <memory>

#include "data/sources.h"

namespace bv {
namespace {

constexpr int pool_size = 64;
// Not the epoch's length: the loader's epochs are 1,000 batches regardless.
constexpr int64_t nominal_size = int64_t{1} << 30;

class Synthetic : public Dataset {
 public:
  Synthetic(uint64_t seed, int side, int classes) : classes_(classes) {
    for (uint32_t i = 0; i < pool_size; ++i) {
      RandomWords random(seed, random_data, i);
      Image image = black_image(side, side);
      for (size_t at = 0; at < image.pixels.size(); at += 4) {
        const uint32_t word = random.next();
        for (size_t k = 0; k < 4 && at + k < image.pixels.size(); ++k)
          image.pixels[at + k] = static_cast<uint8_t>(word >> 8 * k);
      }
      pool_.push_back(std::move(image));
    }
  }
  int64_t size() const override { return nominal_size; }
  int label(int64_t index) const override { return static_cast<int>(index % pool_size % classes_); }
  Image image(int64_t index, int) const override { return pool_[index % pool_size]; }
  std::string name(int64_t index) const override {
    return "synthetic image " + std::to_string(index % pool_size);
  }

 private:
  int classes_;
  std::vector<Image> pool_;
};

}  // namespace

DataSets open_synthetic(const DataOptions& options) {
  DataSets sets{.kind = DataKind::synthetic};
  const int count = class_count_option(options);
  if (count == 0) sets.classes = options.classes;
  if (sets.classes.empty()) {
    for (int i = 0; i < (count ? count : 10); ++i) sets.classes.push_back(std::to_string(i));
    sets.classes = order_classes(sets.classes, options).names;
  }
  sets.fingerprint = Fingerprint("synthetic", sets.classes).value();
  const int side = options.image_size > 0 ? options.image_size : 224;
  sets.train =
      std::make_unique<Synthetic>(options.seed, side, static_cast<int>(sets.classes.size()));
  sets.description = "synthetic images, 1000 batches per epoch, " +
                     std::to_string(sets.classes.size()) + " classes, no evaluation";
  return sets;
}

}  // namespace bv
