// A part of an image, decoded at a size that libjpeg supports, has the same pixels as in the whole
// image at that size, and is close to the same part at full size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "data/decode/decode.h"
#include "data/prepare.h"
#include "tests/data/data_files.h"
#include "tests/data/encode_jpeg.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::span<const uint8_t> bytes_of(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

// A part of a JPEG at dct_scale/8 of its size, as stored.
Image part_of(const std::string& file, int dct_scale, const Region& part) {
  if constexpr (have_turbojpeg)
    return decode_jpeg_turbo(bytes_of(file), inspect_jpeg(bytes_of(file)), dct_scale, part,
                             nullptr);
  throw std::logic_error("built without libjpeg-turbo");
}

// Similar to a photo: soft shapes, edges in all directions, fine texture, a little noise.
uint8_t photo(int y, int x, int c) {
  const double soft = 60 * std::sin(x / 47.0 + c) * std::cos(y / 61.0 - c);
  const double edge = std::sin(x / 23.0 + y / 31.0) * std::sin(y / 17.0) > 0.3 ? 45 : -20;
  const double texture = 14 * std::sin(x * 0.9 + c) * std::sin(y * 0.7);
  const uint32_t hash = (uint32_t(x) * 2654435761u ^ uint32_t(y) * 2246822519u) * 3266489917u;
  return uint8_t(std::clamp(118 + soft + edge + texture + double(hash >> 28) - 8, 0.0, 255.0));
}

Image cut(const Image& image, const Region& r) {
  Image part = black_image(r.height, r.width);
  for (int y = 0; y < r.height; ++y)
    std::copy_n(&image.pixels[3 * (size_t(r.top + y) * size_t(image.width) + size_t(r.left))],
                3 * r.width, &part.pixels[3 * size_t(y) * size_t(r.width)]);
  return part;
}

struct Random {
  uint32_t state = 1;
  int below(int limit) {
    state = state * 1664525 + 1013904223;
    return int(uint64_t{state} * uint64_t(limit) >> 32);
  }
};

class Views : public testing::Test {
 protected:
  Views() {
    if (!have_turbojpeg) return;
    for (const bool progressive : {false, true})
      for (const auto& [x, y] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}})
        pictures_.push_back({.width = 173,
                             .height = 141,
                             .sampling_x = x,
                             .sampling_y = y,
                             .progressive = progressive});
    pictures_.push_back({.width = 150, .height = 97, .components = 1});
    pictures_.push_back({.width = 97, .height = 150, .components = 4});
    pictures_.push_back({.width = 150, .height = 97, .restart = 3});
    pictures_.push_back({.width = 97, .height = 80, .arithmetic = true});
    for (JpegPicture& p : pictures_) p.sample = photo;
  }

  std::vector<JpegPicture> pictures_;
};

TEST_F(Views, PartsHaveThePixelsOfTheWhole) {
  Random random;
  for (const JpegPicture& p : pictures_) {
    const std::string file = encode_jpeg(p);
    for (int dct_scale = 1; dct_scale <= 8; ++dct_scale) {
      const int height = scaled_length(p.height, dct_scale),
                width = scaled_length(p.width, dct_scale);
      const Image whole = part_of(file, dct_scale, {.height = height, .width = width});
      ASSERT_EQ(whole.pixels.size(), 3 * size_t(height) * size_t(width));
      for (int i = 0; i < 12; ++i) {
        Region part{.top = random.below(height), .left = random.below(width)};
        part.height = 1 + random.below(height - part.top);
        part.width = 1 + random.below(width - part.left);
        if (i == 0) part = {.top = height - 1, .left = width - 1, .height = 1, .width = 1};
        if (i == 1) part = {.top = 0, .left = 16 % width, .height = height, .width = 1};
        EXPECT_EQ(part_of(file, dct_scale, part).pixels, cut(whole, part).pixels)
            << "sampling " << p.sampling_x << "x" << p.sampling_y << " components " << p.components
            << " progressive " << p.progressive << " " << dct_scale << "/8: " << part.width << "x"
            << part.height << " at " << part.left << "," << part.top;
      }
    }
  }
}

struct Difference {
  double mean = 0;
  int most = 0;
};
Difference difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  Difference d;
  for (size_t i = 0; i < a.size(); ++i) {
    const int levels = std::abs(a[i] - b[i]);
    d.mean += double(levels) / double(a.size());
    d.most = std::max(d.most, levels);
  }
  return d;
}

std::vector<uint8_t> resized(const Image& image, const Box& box, int height, int width,
                             Interpolation interpolation = Interpolation::bilinear) {
  std::vector<uint8_t> out(3 * size_t(height) * size_t(width));
  Resizer().run(image, box, height, width, out.data(), interpolation);
  return out;
}

// Compares a photo decoded at each scale and resized with the photo decoded at full size. The
// loader asks for scales at which the filter still shrinks by 1.25 or more.
TEST_F(Views, ScaledDecodingIsNearTheWhole) {
  const std::string file =
      encode_jpeg({.width = 640, .height = 480, .quality = 90, .sample = photo});
  if (file.empty()) GTEST_SKIP() << "built without libjpeg-turbo";
  const Image full = decode_image(bytes_of(file), 0);
  const Box all{.height = 480, .width = 640};
  for (int dct_scale = 1; dct_scale < 8; ++dct_scale)
    for (const auto interpolation : {Interpolation::bilinear, Interpolation::bicubic})
      for (const double by_filter : {1.25, 1.5, 2.0, 2.4}) {
        const double scale = dct_scale / 8.0;
        const Image scaled = part_of(
            file, dct_scale, {.height = scaled_length(480, dct_scale), .width = 80 * dct_scale});
        const int height = int(480 * scale / by_filter), width = int(640 * scale / by_filter);
        const Difference d =
            difference(resized(full, all, height, width, interpolation),
                       resized(scaled, {.height = 480 * scale, .width = 640 * scale}, height, width,
                               interpolation));
        EXPECT_LE(d.mean, 2 / by_filter) << dct_scale << "/8, then by " << by_filter;
        EXPECT_LE(d.most, 25) << dct_scale << "/8, then by " << by_filter;
        if (std::getenv("BAREVISION_VERBOSE"))
          std::cout << dct_scale << "/8, then by " << by_filter << ": mean " << d.mean << ", most "
                    << d.most << "\n";
      }
}

// A part's position is right to a fraction of a scaled pixel, in every orientation of the photo.
TEST_F(Views, PartsLieWhereTheyDoInTheImage) {
  if (!have_turbojpeg) GTEST_SKIP() << "built without libjpeg-turbo";
  const auto smooth = [](int y, int x, int c) {
    return uint8_t(127 + 60 * std::sin(x / 19.0 + c) + 60 * std::cos(y / 23.0));
  };
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const Region& of : {Region{}, Region{.top = 21, .left = 35, .height = 90, .width = 75}}) {
      const std::string file = encode_jpeg({.width = 173,
                                            .height = 141,
                                            .quality = 95,
                                            .orientation = orientation,
                                            .sample = smooth});
      const Image photo = decode_image(bytes_of(file), 0);
      const Image image = of == Region{} ? photo : cut(photo, of);
      const Box box{
          .top = 7, .left = 11, .height = image.height - 13.0, .width = image.width - 19.0};
      for (const int out : {6, 12, 24}) {
        const auto choose = [&](int height, int width) {
          EXPECT_EQ(height, image.height);
          EXPECT_EQ(width, image.width);
          const double shrink = std::min(box.height, box.width) / out;
          return DecodeRequest{pixels_read(box, out, out, Interpolation::bilinear), shrink};
        };
        const View view = decode_view(bytes_of(file), choose, of);
        EXPECT_LT(view.dct_scale, 8);
        std::vector<uint8_t> row(3 * size_t(out) * size_t(out));
        Resizer().run(view, box, out, out, row.data());
        const Difference d = difference(row, resized(image, box, out, out));
        EXPECT_LT(d.mean, 1.25) << "orientation " << orientation << ", " << view.dct_scale << "/8";
        EXPECT_LT(d.most, 6) << "orientation " << orientation << ", " << view.dct_scale << "/8";
      }
      // At full size the decoded part equals the rectangle bit for bit.
      const View whole = decode_view(
          bytes_of(file), [](int h, int w) { return whole_image(h, w); }, of);
      EXPECT_EQ(whole.pixels.pixels, image.pixels);
    }
}

TEST_F(Views, BoxesBeyondThePhotoAreRefused) {
  const std::string ppm = "P6\n2 1\n255\n123456";
  const auto all = [](int h, int w) { return whole_image(h, w); };
  EXPECT_EQ(decode_view(bytes_of(ppm), all, {.left = 1, .height = 1, .width = 1}).pixels.pixels,
            (std::vector<uint8_t>{'4', '5', '6'}));
  EXPECT_EQ(error_of<BadImage>(
                [&] { decode_view(bytes_of(ppm), all, {.left = 1, .height = 1, .width = 2}); }),
            "its box of 2x1 pixels at 1,0 is not inside the photo's 2x1");
}

// Rows of batches are the same whether made from parts or from cached whole images, and close to
// rows made from whole images at full size.
TEST_F(Views, RowsDontDependOnTheCache) {
  TemporaryFolder folder;
  for (int i = 0; i < 8; ++i) {
    const std::string file = encode_jpeg({.width = 400 + 13 * i,
                                          .height = 300 + 7 * i,
                                          .quality = 90,
                                          .progressive = i % 3 == 2,
                                          .orientation = 1 + i,
                                          .sample = photo});
    const std::string name = "/" + std::to_string(i) + ".jpg";
    if (file.empty()) GTEST_SKIP() << "built without libjpeg-turbo";
    write_text(folder / ((i % 2 ? "a" : "b") + name), file);
  }
  const DataSets sets = open_dataset({.path = folder.path(), .val_fraction = 0});
  constexpr int size = 32;
  int scaled = 0;
  for (const TrainCrop train :
       {TrainCrop::random_resized, TrainCrop::none, TrainCrop::padded, TrainCrop::pad_if_needed})
    for (const CropMode mode : {CropMode::center, CropMode::squash, CropMode::border})
      for (const auto interpolation : {Interpolation::bilinear, Interpolation::bicubic}) {
        const bool random = train == TrainCrop::random_resized;
        if (mode != CropMode::center && train != TrainCrop::none) continue;
        LoaderOptions o{.kind = sets.kind, .image_size = size, .local_batch = 1, .seed = 3};
        o.crop = {.train = train, .mode = mode, .pct = 0.9, .interpolation = interpolation};
        Preprocessor parts(*sets.train, o, true);
        o.cache_bytes = 1 << 30;
        Preprocessor wholes(*sets.train, o, true);
        for (int64_t i = 0; i < sets.train->size(); ++i)
          for (uint32_t epoch = 0; epoch < (random ? 3 : 1); ++epoch) {
            const auto row = [&](Preprocessor& p) {
              std::vector<uint8_t> pixels(3 * size * size);
              Crop crop;
              Resizer resizer;
              p.run(i, epoch, resizer, {.pixels = pixels.data(), .crop = crop, .ops = {}});
              return pixels;
            };
            const auto pixels = row(parts);
            EXPECT_EQ(pixels, row(wholes));
            if (!random) continue;
            const Box box = parts.shown(i, epoch);
            const Image whole = sets.train->image(i, 0);
            EXPECT_LT(difference(pixels, resized(whole, box, size, size, interpolation)).mean, 2);
            scaled += std::min(box.height, box.width) > 2.5 * size;
          }
      }
  EXPECT_GT(scaled, 20);
}

}  // namespace
}  // namespace bv::test
