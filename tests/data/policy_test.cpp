// Policies, their operations and resizing compared with torchvision, timm and Pillow
// (tests/golden/images/make_augment_reference.py), and the frequency of each choice.
#include "data/augment/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/decode/decode_image.h"
#include "data/loader.h"
#include "tests/files.h"
#include "tests/kernels/device.h"

namespace bv::test {
namespace {

using Json = nlohmann::json;

Image part(const Image& image, int top, int left, int height, int width) {
  Image result = black_image(height, width);
  for (int y = 0; y < height; ++y)
    std::copy_n(&image.pixels[(size_t(top + y) * image.width + left) * 3], 3 * width,
                &result.pixels[size_t(y) * width * 3]);
  return result;
}

// The reference written by make_augment_reference.py.
struct Reference {
  Json about;
  Image sheet;
  int size = 0, columns = 0, operations = 0;

  Reference() {
    std::ifstream file("tests/golden/images/augment_reference.json");
    const std::string png = contents("tests/golden/images/augment_reference.png");
    if (!file || png.empty()) return;
    about = Json::parse(file);
    sheet = decode_image({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, 0);
    size = about["size"], columns = about["columns"], operations = int(about["operations"].size());
  }
  int rows() const { return (operations + columns) / columns; }
  Image tile(int i, int below = 0) const {
    return part(sheet, below + i / columns * size, i % columns * size, size, size);
  }
  Image large() const {
    return part(sheet, rows() * size, 0, about["large"][1], about["large"][0]);
  }
  Image of_large(int i) const { return tile(i, rows() * size + int(about["large"][1])); }
};

const Reference& reference() {
  static const Reference once;
  return once;
}

class TorchvisionsPictures : public testing::Test {
 protected:
  void SetUp() override {
    if (reference().about.is_null()) GTEST_SKIP() << "not in the project's folder";
  }
};
using TorchvisionsPolicies = TorchvisionsPictures;

struct Difference {
  int most = 0;
  double mean = 0, pixels_over_2 = 0, unequal = 0;  // the last two: fractions of all pixels
};
Difference compare(const Image& image, const Image& expected) {
  Difference d;
  const size_t n = expected.pixels.size();
  for (size_t i = 0; i < n; i += 3) {
    int most = 0;
    for (size_t c = i; c < i + 3; ++c) {
      const int off = std::abs(image.pixels[c] - expected.pixels[c]);
      most = std::max(most, off), d.mean += off / double(n), d.unequal += (off > 0) / double(n);
    }
    d.most = std::max(d.most, most), d.pixels_over_2 += (most > 2) * 3 / double(n);
  }
  return d;
}

Operation operation_called(const std::string& name) {
  for (int i = 0; i <= int(Operation::erase); ++i)
    if (name_of(Operation(i)) == name) return Operation(i);
  throw std::logic_error("no operation " + name);
}

Image run(const ImageOp& op, const Image& image) {
  for (const Device& device : devices_to_test())
    if (device.host_threads && device.unavailable.empty()) {
      Image out = black_image(image.height, image.width);
      device.make_kernels()->run(
          AugmentImages{.out = out.pixels.data(),
                        .images = image.pixels.data(),
                        .ops = &op,
                        .shape = {1, image.height, image.width, image.height, 0, 1}},
          nullptr);
      return out;
    }
  throw std::logic_error("no CPU");
}

// ---- pixels -------------------------------------------------------------------------------------
TEST_F(TorchvisionsPictures, EachOperation) {
  const Reference& r = reference();
  const Image small = r.tile(0);
  ASSERT_GE(r.operations, 90);
  std::set<std::string> names;
  for (int i = 0; i < r.operations; ++i) {
    const Json& what = r.about["operations"][size_t(i)];
    const DrawnOperation drawn{operation_called(what["name"]), what["magnitude"]};
    const Difference d = compare(run(image_op({}, drawn, r.size), small), r.tile(1 + i));
    const std::string name = what.dump();
    names.insert(what["name"]);
    if (drawn.operation >= Operation::shear_x && drawn.operation <= Operation::rotate) {
      EXPECT_LE(d.pixels_over_2, 0.001) << name;
    } else {
      EXPECT_LE(d.most, 1) << name;
    }
    // Pillow's float may round 1.3 * 10 down to 12.
    EXPECT_LE(d.unequal, 0.05) << name;
  }
  EXPECT_EQ(names.size(), 16u);  // RandAugment's, and Invert, SolarizeAdd, Hue
}

TEST_F(TorchvisionsPictures, ResizedCrops) {
  const Reference& r = reference();
  const Image large = r.large();
  for (size_t i = 0; i < r.about["resized"].size(); ++i) {
    const Json& what = r.about["resized"][i];
    Image out = black_image(r.size, r.size);
    if (what.contains("box")) {
      const std::vector<double> box = what["box"];
      Resizer().run(
          large, {.top = box[1], .left = box[0], .height = box[3], .width = box[2]}, r.size, r.size,
          out.pixels.data(),
          what["interpolation"] == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear);
    } else {
      continue;
    }
    const Difference d = compare(out, r.of_large(int(i)));
    EXPECT_LE(d.most, 2) << what;
    EXPECT_LE(d.mean, 0.5) << what;
  }
}

// A data set of one image.
class OnePicture final : public Dataset {
 public:
  explicit OnePicture(Image image) : image_(std::move(image)) {}
  int64_t size() const override { return 1; }
  int label(int64_t) const override { return 0; }
  Image image(int64_t, int) const override { return image_; }
  std::string name(int64_t) const override { return "picture"; }

 private:
  Image image_;
};

TEST_F(TorchvisionsPictures, EvaluationCrops) {
  const Reference& r = reference();
  const OnePicture data(r.large());
  int compared = 0;
  for (size_t i = 0; i < r.about["resized"].size(); ++i) {
    const Json& what = r.about["resized"][i];
    if (!what.contains("crop_mode")) continue;
    LoaderOptions o{.kind = DataKind::photos, .image_size = r.size, .local_batch = 1};
    o.crop.mode = what["crop_mode"] == "center"   ? CropMode::center
                  : what["crop_mode"] == "squash" ? CropMode::squash
                                                  : CropMode::border;
    o.crop.pct = what["crop_pct"];
    for (size_t c = 0; c < 3; ++c)
      o.augment.mean_color[c] = uint8_t(std::lround(255 * double(r.about["mean"][c])));
    Loader loader(data, o, false);
    loader.start(0, 0);
    const Batch& batch = loader.next();
    const Image image{r.size, r.size, {batch.images, batch.images + size_t(r.size) * r.size * 3}};
    const Difference d = compare(image, r.of_large(int(i)));
    EXPECT_LE(d.most, 2) << what;
    EXPECT_LE(d.mean, 0.5) << what;
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

// ---- crops without resizing ---------------------------------------------------------------------
TEST(Crops, PicturesSmallerThanTheCropAreFramedInBlackAndWhole) {
  Image image = black_image(10, 14);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = uint8_t(1 + i % 250);
  const OnePicture data(image);
  LoaderOptions o{.kind = DataKind::photos, .image_size = 20, .local_batch = 1};
  o.crop.train = TrainCrop::pad_if_needed;
  Loader loader(data, o, true);
  loader.start(0, 0);
  std::set<std::pair<int, int>> places;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Batch& batch = loader.next();
    const Window at = random_window({0, uint32_t(epoch), 0}, 10, 14, 20, o.crop);
    places.insert({at.top, at.left});
    for (int y = 0; y < 20; ++y)
      for (int x = 0; x < 20; ++x) {
        const int row = y + at.top, column = x + at.left;
        const bool inside = row >= 0 && row < 10 && column >= 0 && column < 14;
        ASSERT_EQ(batch.images[(y * 20 + x) * 3],
                  inside ? image.pixels[size_t(row * 14 + column) * 3] : 0);
      }
  }
  EXPECT_EQ(places.begin()->first, -10);
  EXPECT_EQ(places.rbegin()->first, 0);
  EXPECT_GT(places.size(), 60u);  // of 11 x 7
}

TEST(Crops, PadEvaluatesUnscaledInTheMiddleOfABlackFrame) {
  for (const auto& [height, width] : {std::pair{10, 14}, {31, 14}, {20, 20}, {33, 27}}) {
    Image image = black_image(height, width);
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = uint8_t(1 + i % 250);
    const OnePicture data(image);
    LoaderOptions o{.kind = DataKind::photos, .image_size = 20, .local_batch = 1};
    o.crop.mode = CropMode::pad;
    std::ranges::fill(o.augment.mean_color, uint8_t{99});
    Loader loader(data, o, false);
    loader.start(0, 0);
    const Batch& batch = loader.next();
    const auto begin = [](int length) {
      return length < 20 ? -((20 - length) / 2) : (length - 20) / 2;
    };
    for (int y = 0; y < 20; ++y)
      for (int x = 0; x < 20; ++x) {
        const int row = y + begin(height), column = x + begin(width);
        const bool inside = row >= 0 && row < height && column >= 0 && column < width;
        ASSERT_EQ(batch.images[(y * 20 + x) * 3],
                  inside ? image.pixels[size_t(row * width + column) * 3] : 0)
            << height << 'x' << width << ' ' << y << ' ' << x;
      }
  }
}

TEST(Crops, LargerPicturesGiveAWindow) {
  std::set<int> tops;
  for (uint32_t i = 0; i < 500; ++i) {
    const Window at = random_window({1, 0, i}, 30, 24, 20, {.train = TrainCrop::pad_if_needed});
    EXPECT_TRUE(at.top >= 0 && at.top <= 10 && at.left >= 0 && at.left <= 4);
    tops.insert(at.top);
  }
  EXPECT_EQ(tops.size(), 11u);
}

TEST(Crops, PicturesOfOneSizeAreStoredAsTheyAre) {
  EXPECT_EQ(stored_size(DataKind::cifar, {.train = TrainCrop::pad_if_needed}, 224, true), 32);
  EXPECT_EQ(stored_size(DataKind::cifar, {.train = TrainCrop::pad_if_needed}, 224, false), 224);
  EXPECT_EQ(stored_size(DataKind::cifar, {.train = TrainCrop::padded}, 224, true), 224);
  EXPECT_EQ(stored_size(DataKind::photos, {.train = TrainCrop::pad_if_needed}, 224, true), 224);
}

TEST(Crops, FlipsHaveTheirProbabilities) {
  int flips[2] = {}, never = 0, always = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    Crop crop{};
    random_flips({3, 1, i}, {.hflip = 0.3, .vflip = 0.6}, crop);
    flips[0] += crop.flip, flips[1] += crop.upside_down;
    random_flips({3, 1, i}, {.hflip = 0, .vflip = 1}, crop);
    never += crop.flip, always += crop.upside_down;
  }
  EXPECT_NEAR(flips[0], 3000, 200);
  EXPECT_NEAR(flips[1], 6000, 200);
  EXPECT_EQ(never, 0);
  EXPECT_EQ(always, 10000);
}

// ---- draws --------------------------------------------------------------------------------------
constexpr int draws = 100000;
using Probabilities = std::map<std::string, double>;

std::string named(const std::string& operation, double magnitude) {
  char text[60];
  std::snprintf(text, sizeof text, "%s %.3f ", operation.c_str(), magnitude == 0 ? 0 : magnitude);
  return text;
}

// Compares the operations that `draws` images get with their probabilities, by Pearson's
// chi-square: at most 5 standard deviations, and no operation of probability 0.
void expect_frequencies(const Augmentation& a, const Probabilities& expected, int size) {
  std::map<std::string, int> counts;
  for (uint32_t i = 0; i < draws; ++i) {
    std::string list;
    for (const DrawnOperation& d : draw_operations(a, {17, 2, i}, size))
      list += named(std::string(name_of(d.operation)), d.magnitude);
    ++counts[list];
  }
  double chi_square = 0, sum = 0;
  for (const auto& [list, p] : expected) {
    const double mean = p * draws, off = counts[list] - mean;
    if (mean == 0) {
      EXPECT_EQ(counts[list], 0) << list;
    } else {
      chi_square += off * off / mean;
    }
    sum += p;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  for (const auto& [list, count] : counts)
    EXPECT_TRUE(expected.contains(list)) << "'" << list << "' was drawn " << count << " times";
  const double freedom = double(expected.size()) - 1;
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom));
}

// One operation from torchvision's space, at one bin or at all bins.
Probabilities one_of(const Json& space, int bin) {
  Probabilities all;
  for (const auto& [name, op] : space.items()) {
    const std::vector<double> magnitudes = op["magnitudes"];
    for (size_t i = 0; i < magnitudes.size(); ++i) {
      if (magnitudes.size() > 1 && bin >= 0 && int(i) != bin) continue;
      const double p = 1.0 / double(space.size()) / (bin < 0 ? double(magnitudes.size()) : 1);
      const std::string empty;
      const auto add = [&](double m, double share) {
        all[name == "Identity" ? empty : named(name, m)] += share;
      };
      if (op["signed"])
        add(magnitudes[i], p / 2), add(-magnitudes[i], p / 2);
      else
        add(magnitudes[i], p);
    }
  }
  return all;
}

Probabilities both(const Probabilities& first, const Probabilities& second) {
  Probabilities all;
  for (const auto& [a, p] : first)
    for (const auto& [b, q] : second) all[a + b] += p * q;
  return all;
}

TEST_F(TorchvisionsPolicies, RandAugment) {
  const Json& space = reference().about["spaces"]["ra"];
  for (const int magnitude : {9, 30}) {
    const Probabilities one = one_of(space, magnitude);
    expect_frequencies({.policy = Policy::ra, .ra_ops = 1, .ra_magnitude = magnitude}, one, 32);
    expect_frequencies({.policy = Policy::ra, .ra_ops = 2, .ra_magnitude = magnitude},
                       both(one, one), 32);
  }
}

TEST_F(TorchvisionsPolicies, TrivialAugmentWide) {
  expect_frequencies({.policy = Policy::ta_wide},
                     one_of(reference().about["spaces"]["ta_wide"], -1), 32);
}

TEST_F(TorchvisionsPolicies, AutoAugment) {
  const Json& space = reference().about["spaces"]["autoaugment"];
  for (const auto& [name, policy] :
       {std::pair{"cifar10", Policy::cifar10}, std::pair{"imagenet", Policy::imagenet}}) {
    const Json& table = reference().about["policies"][name];
    ASSERT_EQ(table.size(), 25u);
    Probabilities all;
    for (const Json& steps : table) {
      Probabilities of_steps = {{"", 1.0 / 25}};
      for (const Json& step : steps) {
        const std::string op = step[0];
        const double p = step[1];
        const double m =
            int(step[2]) < 0 ? 0 : double(space[op]["magnitudes"][size_t(int(step[2]))]);
        Probabilities one = {{"", 1 - p}};
        const double share = space[op]["signed"] ? p / 2 : p;
        one[named(op, m)] += share;
        if (space[op]["signed"]) one[named(op, -m)] += share;
        of_steps = both(of_steps, one);
      }
      for (const auto& [list, p] : of_steps) all[list] += p;
    }
    expect_frequencies({.policy = policy}, all, 32);
  }
}

// Every bin's magnitude; translations are truncated to whole pixels.
TEST_F(TorchvisionsPolicies, Magnitudes) {
  const Json& space = reference().about["spaces"]["ra"];
  for (int bin = 0; bin <= 30; ++bin) {
    std::map<std::string, double> found;
    for (uint32_t i = 0; i < 400; ++i)
      for (const DrawnOperation& d :
           draw_operations({.policy = Policy::ra, .ra_magnitude = bin}, {1, 1, i}, 32))
        found[std::string(name_of(d.operation))] = std::fabs(d.magnitude);
    EXPECT_EQ(found.size(), space.size() - 1);
    for (const auto& [name, magnitude] : found) {
      const std::vector<double> expected = space[name]["magnitudes"];
      const double m = expected.size() > 1 ? expected[size_t(bin)] : 0;
      EXPECT_NEAR(magnitude, m, 1e-4) << name << ' ' << bin;
      if (name.starts_with("Translate")) {
        EXPECT_EQ(int(magnitude), int(m)) << bin;
      }
      if (name == "Solarize") {
        EXPECT_EQ(std::ceil(magnitude), std::ceil(m)) << bin;
      }
    }
  }
}

TEST(Policies, DaliTakesTwoOfSixteenOnHalfOfTheImages) {
  const Augmentation a{.policy = Policy::ra_dali, .ra_magnitude = 10};
  const std::map<std::string, double> magnitudes = {
      {"AutoContrast", 0}, {"Equalize", 0},    {"Invert", 0},        {"Rotate", 30},
      {"Posterize", 4},    {"Solarize", 200},  {"SolarizeAdd", 110}, {"Color", .9},
      {"Contrast", .9},    {"Brightness", .9}, {"Sharpness", .9},    {"ShearX", .3},
      {"ShearY", .3},      {"TranslateX", 40}, {"TranslateY", 40},   {"Cutout", 40}};
  Probabilities all = {{"", 0.5}};
  const auto variants = [&](const std::string& name) {
    const double m = magnitudes.at(name);
    Probabilities one = {{named(name, m), 1}};
    if (name.starts_with("Shear") || name.starts_with("Translate") || name == "Rotate")
      one = {{named(name, m), .5}, {named(name, -m), .5}};
    return one;
  };
  for (const auto& [first, unused1] : magnitudes)
    for (const auto& [second, unused2] : magnitudes)
      if (first != second)
        for (const auto& [list, p] : both(variants(first), variants(second)))
          all[list] += p / 2 / (16 * 15);
  expect_frequencies(a, all, 224);

  // Cutout: a square of 80 around any pixel, cut off at the border. All fills are grey.
  double area = 0;
  int cutouts = 0;
  for (uint32_t i = 0; i < 20000; ++i)
    for (const DrawnOperation& d : draw_operations(a, {4, 4, i}, 224)) {
      if (d.operation != Operation::cutout) continue;
      const ImageOp op = image_op(a, d, 224);
      EXPECT_EQ(op.fill[1], 128);
      EXPECT_TRUE(op.at[0] >= 0 && op.at[1] >= 0 && op.at[0] + op.at[2] <= 224 &&
                  op.at[1] + op.at[3] <= 224 && op.at[2] <= 80 && op.at[3] <= 80);
      area += double(op.at[2]) * op.at[3], ++cutouts;
    }
  const double mean_side = 80 - 40 * 40 / 224.0;  // minus the parts cut off by the borders
  EXPECT_NEAR(area / cutouts, mean_side * mean_side, 100);
}

TEST(Policies, JitterIsTorchvisions) {
  const Augmentation a{.jitter = {0.4, 0.2, 0, 0.1}};
  EXPECT_EQ(a.layers(), 3);
  std::map<std::string, int> orders;
  double low = 0, high = 0, sum = 0;
  for (uint32_t i = 0; i < 60000; ++i) {
    std::string order;
    for (const DrawnOperation& d : draw_operations(a, {5, 0, i}, 32)) {
      order += name_of(d.operation)[0];
      const double limit = d.operation == Operation::brightness ? 0.4
                           : d.operation == Operation::contrast ? 0.2
                                                                : 0.1;
      EXPECT_LE(std::fabs(d.magnitude), limit);
      if (d.operation == Operation::brightness)
        low = std::min(low, d.magnitude), high = std::max(high, d.magnitude), sum += d.magnitude;
    }
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, count] : orders) chi_square += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi_square, 5 + 5 * std::sqrt(10));
  EXPECT_LT(low, -0.399);
  EXPECT_GT(high, 0.399);
  EXPECT_NEAR(sum / 60000, 0, 0.005);
}

TEST(Policies, ErasingIsTimms) {
  const Augmentation a{.erase = 0.25, .mean_color = {124, 116, 104}};
  double area = 0, most = 0;
  int erased = 0;
  for (uint32_t i = 0; i < draws; ++i)
    for (const DrawnOperation& d : draw_operations(a, {5, 0, i}, 224)) {
      const ImageOp op = image_op(a, d, 224);
      EXPECT_EQ(op.kind, ImageOpKind::erase);
      EXPECT_EQ(op.fill[2], 104);
      EXPECT_TRUE(op.at[0] >= 0 && op.at[1] >= 0 && op.at[0] + op.at[2] <= 224 &&
                  op.at[1] + op.at[3] <= 224);
      const double aspect = double(op.at[2]) / op.at[3];
      EXPECT_TRUE(aspect > 0.29 && aspect < 3.45) << aspect;
      const double share = double(op.at[2]) * op.at[3] / (224 * 224);
      area += share, most = std::max(most, share), ++erased;
    }
  EXPECT_NEAR(erased, 25000, 5 * std::sqrt(draws * .25 * .75));
  EXPECT_NEAR(area / erased, 0.17, 0.01);  // the middle of 0.02 and 1/3
  EXPECT_GT(most, 0.32);
}

TEST(Policies, FollowPolicyThenJitterThenErasing) {
  const Augmentation a{.policy = Policy::ra, .ra_ops = 3, .jitter = {.5, 0, 0, 0}, .erase = 1};
  EXPECT_EQ(a.layers(), 5);
  for (uint32_t i = 0; i < 500; ++i) {
    const auto list = draw_operations(a, {1, 1, i}, 32);
    ASSERT_GE(list.size(), 1u);
    ASSERT_LE(list.size(), 5u);
    const auto erase = std::ranges::find(list, Operation::erase, &DrawnOperation::operation);
    if (erase != list.end()) {
      EXPECT_EQ(erase, list.end() - 1);
    }
    EXPECT_EQ(std::ranges::count(list, Operation::identity, &DrawnOperation::operation), 0);
  }
}

TEST(Policies, ChoicesFollowSeedEpochAndIndex) {
  const Augmentation a{.policy = Policy::ta_wide};
  const auto list = [&](AugmentKey key) {
    std::string text;
    for (key.index = 0; key.index < 20; ++key.index)
      for (const DrawnOperation& d : draw_operations(a, key, 32))
        text += named(std::string(name_of(d.operation)), d.magnitude);
    return text;
  };
  EXPECT_EQ(list({1, 2, 0}), list({1, 2, 0}));
  EXPECT_NE(list({1, 2, 0}), list({2, 2, 0}));
  EXPECT_NE(list({1, 2, 0}), list({1, 3, 0}));
}

}  // namespace
}  // namespace bv::test
