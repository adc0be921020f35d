// WebP and TIFF: files written by their libraries and read back; unusual and damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "data/dataset.h"
#include "data/decode/decode.h"
#include "tests/data/encode.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
Image decode(const std::string& file) { return decode_image(bytes_of(file), 0); }
std::string refusal(const std::string& file) {
  return error_of<BadImage>([&] { decode(file); });
}
// The refusal by the header check before a run.
std::string header_refusal(const std::string& file) {
  const Bytes bytes = bytes_of(file);
  FileView view(bytes);
  return error_of<BadImage>([&] { check_header(view); });
}

// Smooth, so that lossy compression keeps it.
Bytes gradient(int width, int height, int channels) {
  Bytes out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        out.push_back(c == 3 ? 255 : static_cast<uint8_t>(20 + 3 * x + 2 * y + 40 * c));
  return out;
}

int largest_difference(const Bytes& a, const Bytes& b) {
  int largest = a.size() == b.size() ? 0 : 1000;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

class Webp : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_webp) GTEST_SKIP() << "built without libwebp";
  }
};

TEST_F(Webp, LosslessAndLossy) {
  const Bytes rgba = gradient(30, 20, 4), rgb = gradient(30, 20, 3);
  const Image exact = decode(encode_webp(30, 20, rgba, true));
  EXPECT_EQ(exact.width, 30);
  EXPECT_EQ(exact.height, 20);
  EXPECT_EQ(exact.pixels, rgb);
  EXPECT_LE(largest_difference(decode(encode_webp(30, 20, rgba, false)).pixels, rgb), 12);
}

TEST_F(Webp, AlphaIsOverWhite) {
  const Bytes rgba = {10, 20, 30, 255, 10, 20, 30, 128, 10, 20, 30, 0};
  EXPECT_EQ(decode(encode_webp(3, 1, rgba, true)).pixels,
            (Bytes{10, 20, 30, 132, 137, 142, 255, 255, 255}));
}

TEST_F(Webp, ExifTurnsIt) {
  const std::string image = webp_chunks(encode_webp(3, 2, gradient(3, 2, 4), true));
  const std::string exif("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22);
  Image stored{2, 3, gradient(3, 2, 3)};
  for (const std::string& written : {exif, std::string("Exif\0\0", 6) + exif}) {
    const Image image_of =
        decode(webp_file(webp_canvas(8, 3, 2) + image + webp_chunk("EXIF", written)));
    EXPECT_EQ(image_of.width, 2);
    EXPECT_EQ(image_of.pixels, upright(stored, 6).pixels);
  }
}

TEST_F(Webp, OfAnAnimationTheFirstFrame) {
  const std::string frame = encode_webp(2, 1, Bytes{1, 2, 3, 255, 4, 5, 6, 255}, true);
  const Image image = decode(webp_animation(frame, 2, 1, 2, 0, 4, 2));
  EXPECT_EQ(image.width, 4);
  Bytes expected(24, 255);
  std::copy_n(Bytes{1, 2, 3, 4, 5, 6}.begin(), 6, expected.begin() + 6);
  EXPECT_EQ(image.pixels, expected);
  EXPECT_TRUE(refusal(webp_animation(frame, 2, 1, 4, 0, 4, 2)).starts_with("damaged"));
}

TEST_F(Webp, CutOrDamaged) {
  for (const bool lossless : {false, true}) {
    const std::string whole = encode_webp(30, 20, gradient(30, 20, 4), lossless);
    for (size_t size = 1; size < whole.size(); ++size)
      EXPECT_NE(refusal(whole.substr(0, size)), "no error") << size;
  }
  const std::string whole = encode_webp(30, 20, gradient(30, 20, 4), true);
  EXPECT_EQ(refusal(whole.substr(0, 40)), "WebP data is cut off");
  EXPECT_EQ(header_refusal(whole.substr(0, 40)), "WebP data is cut off");
  EXPECT_EQ(header_refusal(whole), "no error");
}

// The header check reads only the first block.
TEST_F(Webp, LargerThanABlock) {
  Bytes noise;
  uint32_t random = 1;
  for (int i = 0; i < 100 * 90 * 4; ++i) {
    random = random * 1664525 + 1013904223;
    noise.push_back(static_cast<uint8_t>(random >> 24));
  }
  TemporaryFolder folder;
  for (const bool lossless : {false, true})
    for (const bool alpha : {false, true}) {
      Bytes rgba = noise;
      for (size_t i = 3; !alpha && i < rgba.size(); i += 4) rgba[i] = 255;
      const std::string file = encode_webp(100, 90, rgba, lossless);
      EXPECT_GT(file.size(), 5000u);
      EXPECT_EQ(decode(file).width, 100);
      write_text(folder / "image", file);
      const RegularFile on_disk(folder / "image");
      FileView view(on_disk);
      EXPECT_EQ(error_of<BadImage>([&] { check_header(view); }), "no error");
    }
}

TEST_F(Webp, GiantsAreRefusedByTheirHeader) {
  const std::string giant = webp_file(webp_canvas(0, 16000, 16000) + webp_chunk("VP8L", "xxxx"));
  const std::string small = webp_file(webp_canvas(0, 8000, 8000) + webp_chunk("VP8L", "xxxx"));
  EXPECT_EQ(header_refusal(giant),
            "the image claims 16000x16000 pixels, more than 32768 per side or 134 million");
  EXPECT_EQ(refusal(small), "the image claims 8000x8000 pixels, too many for a file of 42 bytes");
}

class Tiff : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_tiff) GTEST_SKIP() << "built without libtiff";
  }
  static TiffPage rgb(int width, int height) {
    return {.width = width, .height = height, .samples = gradient(width, height, 3)};
  }
};

TEST_F(Tiff, StripsTilesPlanesAndCompressions) {
  const Bytes expected = gradient(37, 19, 3);
  for (const int compression : {1, 5, 8, 32773})
    for (const char* mode : {"wl", "wb", "w8"})
      for (const int rows : {0, 4}) {
        TiffPage page = rgb(37, 19);
        page.compression = compression, page.mode = mode, page.rows_per_strip = rows;
        EXPECT_EQ(decode(encode_tiff({page})).pixels, expected) << compression << mode << rows;
      }
  TiffPage tiled = rgb(37, 19);
  tiled.tile = 16;
  EXPECT_EQ(decode(encode_tiff({tiled})).pixels, expected);
  TiffPage planes = rgb(37, 19);
  planes.planar = true;
  for (size_t i = 0; i < expected.size(); ++i)
    planes.samples[i % 3 * 37 * 19 + i / 3] = expected[i];
  EXPECT_EQ(decode(encode_tiff({planes})).pixels, expected);
  TiffPage jpeg = rgb(37, 19);
  jpeg.compression = 7, jpeg.photometric = 6;
  EXPECT_LE(largest_difference(decode(encode_tiff({jpeg})).pixels, expected), 12);
}

TEST_F(Tiff, GreysPalettesInksAndDepths) {
  const auto pixels = [](const TiffPage& page) { return decode(encode_tiff({page})).pixels; };
  TiffPage grey{.width = 2, .height = 1, .samples = {10, 200}};
  grey.samples_per_pixel = 1, grey.photometric = 1;
  EXPECT_EQ(pixels(grey), (Bytes{10, 10, 10, 200, 200, 200}));
  grey.photometric = 0;  // 0 is white
  EXPECT_EQ(pixels(grey), (Bytes{245, 245, 245, 55, 55, 55}));
  grey.photometric = 3;
  EXPECT_EQ(pixels(grey), (Bytes{10, 10, 10, 200, 200, 200}));
  grey.photometric = 1, grey.bits = 16, grey.samples = {0, 100, 0xFF, 0xFF};
  EXPECT_EQ(pixels(grey), (Bytes{100, 100, 100, 255, 255, 255}));
  grey.bits = 1, grey.samples = {0x40};
  EXPECT_EQ(pixels(grey), (Bytes{0, 0, 0, 255, 255, 255}));
  grey.compression = 4;
  EXPECT_EQ(pixels(grey), (Bytes{0, 0, 0, 255, 255, 255}));
  TiffPage deep{.width = 1, .height = 1, .samples = {0, 10, 0, 20, 0xFF, 0xFF}, .bits = 16};
  EXPECT_EQ(pixels(deep), (Bytes{10, 20, 255}));
  TiffPage inks{.width = 2, .height = 1, .samples = {0, 0, 0, 0, 255, 0, 0, 128}};
  inks.samples_per_pixel = 4, inks.photometric = 5;
  EXPECT_EQ(pixels(inks), (Bytes{255, 255, 255, 0, 127, 127}));
}

TEST_F(Tiff, AlphaIsOverWhite) {
  const auto pixels = [](TiffPage page, int extra) {
    page.extra = extra;
    return decode(encode_tiff({page})).pixels;
  };
  constexpr int anything = 0, premultiplied = 1, straight = 2;
  TiffPage page{.width = 3, .height = 1, .samples_per_pixel = 4};
  page.samples = {10, 20, 30, 255, 10, 20, 30, 128, 10, 20, 30, 0};
  const Bytes over_white = {10, 20, 30, 132, 137, 142, 255, 255, 255};
  EXPECT_LE(largest_difference(pixels(page, straight), over_white), 1);
  EXPECT_EQ(pixels(page, anything), (Bytes{10, 20, 30, 10, 20, 30, 10, 20, 30}));
  page.samples = {10, 20, 30, 255, 5, 10, 15, 128, 0, 0, 0, 0};
  EXPECT_EQ(pixels(page, premultiplied), over_white);
  TiffPage grey{.width = 2, .height = 1, .samples_per_pixel = 2, .photometric = 1};
  grey.samples = {100, 128, 100, 255};
  EXPECT_LE(largest_difference(pixels(grey, straight), (Bytes{177, 177, 177, 100, 100, 100})), 1);
  EXPECT_EQ(pixels(grey, premultiplied), (Bytes{227, 227, 227, 100, 100, 100}));
}

TEST_F(Tiff, AllOrientations) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    TiffPage page = rgb(3, 2);
    page.orientation = orientation;
    const Image image = decode(encode_tiff({page}));
    EXPECT_EQ(image.width, orientation < 5 ? 3 : 2);
    EXPECT_EQ(image.pixels, upright({2, 3, gradient(3, 2, 3)}, orientation).pixels) << orientation;
  }
}

TEST_F(Tiff, OfSeveralPagesTheFirst) {
  EXPECT_EQ(decode(encode_tiff({rgb(5, 4), rgb(9, 8)})).width, 5);
}

// The reason given is the message that libtiff would print.
TEST_F(Tiff, CutOrDamaged) {
  testing::internal::CaptureStderr();
  for (const int compression : {1, 5, 7, 8, 32773}) {
    TiffPage page = rgb(37, 19);
    page.compression = compression, page.rows_per_strip = 8;
    const std::string whole = encode_tiff({page});
    for (size_t size = 1; size < whole.size(); size += 3) {
      const std::string why = refusal(whole.substr(0, size));
      EXPECT_TRUE(is_line(why, "")) << why;
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  TiffPage jpeg = rgb(37, 19);
  jpeg.compression = 7, jpeg.photometric = 6;
  std::string sampled = encode_tiff({jpeg});
  const size_t at = sampled.find(std::string("\x12\x02\3\0\2\0\0\0", 8));  // YCbCrSubSampling
  ASSERT_NE(at, std::string::npos);
  sampled[at + 8] = 4;
  EXPECT_EQ(
      refusal(sampled),
      "damaged or unsupported TIFF (Improper JPEG sampling factors 1,1 Apparently should be 4,1.)");
  TiffPage page = rgb(37, 19);
  std::string damaged = encode_tiff({page});
  EXPECT_EQ(header_refusal(damaged), "no error");
  EXPECT_EQ(header_refusal(damaged.substr(0, 100)), "TIFF data is cut off");
  EXPECT_EQ(header_refusal("II*"), refusal("II*"));
  page.bits = 32, page.samples.resize(4 * 37 * 19 * 3);
  EXPECT_EQ(refusal(encode_tiff({page})),
            "damaged or unsupported TIFF (Sorry, can not handle images with 32-bit samples)");
}

// A TIFF directory of tags with one number each.
std::string directory(const std::vector<std::pair<int, uint32_t>>& tags) {
  const auto little = [](uint64_t n, int bytes) {
    std::string s;
    for (int i = 0; i < bytes; ++i) s += char(n >> 8 * i);
    return s;
  };
  std::string file = std::string("II*\0", 4) + little(8, 4) + little(tags.size(), 2);
  for (const auto& [tag, value] : tags)
    file += little(uint64_t(tag), 2) + little(4, 2) + little(1, 4) + little(value, 4);
  return file + little(0, 4);
}

TEST_F(Tiff, GiantsAreRefusedByTheirHeader) {
  for (const auto& [width, height] : {std::pair(40000u, 1u), {30000u, 30000u}, {~0u, ~0u}}) {
    const std::string file = directory({{256, width}, {257, height}});
    EXPECT_TRUE(refusal(file).starts_with("the image claims")) << width;
    EXPECT_EQ(header_refusal(file), refusal(file));
  }
  EXPECT_EQ(refusal(directory({{256, 8}, {257, 8}, {277, 60000}})),
            "TIFF with 60000 samples per pixel");
  EXPECT_EQ(refusal(directory({{256, 8}, {257, 8}, {259, 6}})),
            "TIFF compressed by method 6; none, CCITT, LZW, JPEG, Deflate and PackBits are read");
}

// An image of one pixel in tiles of a gigabyte.
TEST_F(Tiff, TilesFarLargerThanTheImageAreRefused) {
  TiffPage page{.width = 1, .height = 1, .samples = {1, 2, 3}};
  page.tile = 16;
  std::string file = encode_tiff({page});
  EXPECT_EQ(decode(file).width, 1);
  for (const char tag : {'\x42', '\x43'}) {  // TileWidth, TileLength
    const size_t at = file.find(std::string{tag, 1});
    ASSERT_NE(at, std::string::npos);
    file.replace(at + 2, 10, std::string("\4\0\1\0\0\0\0\x40\0\0", 10));
  }
  EXPECT_EQ(refusal(file),
            "damaged or unsupported TIFF (strips or tiles that don't match its size)");
}

TEST(ImageLibraries, WhatABuildLacksIsSaid) {
  if (!have_webp) {
    EXPECT_EQ(refusal("RIFFxxxxWEBPVP8 "),
              "a WebP image; this program was built without libwebp (make deps && make)");
  }
  if (!have_tiff) {
    EXPECT_EQ(refusal(directory({{256, 8}, {257, 8}})),
              "a TIFF image; this program was built without libtiff (make deps && make)");
  }
  EXPECT_EQ(refusal("neither"), header_refusal("neither"));
}

}  // namespace
}  // namespace bv::test
