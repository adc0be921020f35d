// Decoding: real, unusual and damaged files compared with Pillow's pixels, and small files made
// here.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <thread>

#include "data/dataset.h"
#include "data/decode/decode.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;
using Decoder = std::function<Image(const Bytes&)>;

fs::path edge_cases() {
  const char* data = std::getenv("BAREVISION_DATA");
  return fs::path(data ? data : "../shared/data") / "image_edge_cases";
}

Bytes read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Decodes like decode_image in a build without libjpeg-turbo.
Image decode_without_turbo(const Bytes& file) {
  if (file.size() < 2 || file[0] != 0xFF || file[1] != 0xD8) return decode_image(file, 0);
  const JpegInfo info = inspect_jpeg(file);
  return upright(decode_jpeg_stb(file, info), info.orientation);
}

struct NamedDecoder {
  const char* name;
  Decoder decode;
};
std::vector<NamedDecoder> decoders() {
  return {{"preferred", [](const Bytes& b) { return decode_image(b, 0); }},
          {"stb_image", decode_without_turbo}};
}

// Mean absolute differences from a line of image_reference.txt, for the means of cells and for
// sampled pixels.
struct Difference {
  double cells = 0, samples = 0;
};
Difference compare(const Image& image, std::istream& reference) {
  constexpr int grid = 8, samples = 100;
  const auto cell = [](int size, int i) {
    const int begin = i * size / grid;
    return std::pair(begin, std::max((i + 1) * size / grid, begin + 1));
  };
  Difference difference;
  double expected;
  for (int gy = 0; gy < grid; ++gy)
    for (int gx = 0; gx < grid; ++gx)
      for (int c = 0; c < 3; ++c) {
        const auto [y0, y1] = cell(image.height, gy);
        const auto [x0, x1] = cell(image.width, gx);
        double sum = 0;
        for (int y = y0; y < y1; ++y)
          for (int x = x0; x < x1; ++x) sum += image.pixels[(size_t(y) * image.width + x) * 3 + c];
        reference >> expected;
        difference.cells += std::abs(sum / ((y1 - y0) * (x1 - x0)) - expected) / (grid * grid * 3);
      }
  for (uint32_t i = 1; i <= samples; ++i)
    for (int c = 0; c < 3; ++c) {
      const size_t pixel = (2654435761u * i) % (size_t(image.height) * image.width);
      reference >> expected;
      difference.samples += std::abs(image.pixels[pixel * 3 + c] - expected) / (samples * 3);
    }
  EXPECT_TRUE(reference);
  return difference;
}

TEST(Image, MatchesPillow) {
  if (!fs::exists(edge_cases())) GTEST_SKIP() << "no " << edge_cases();
  std::ifstream file("tests/golden/images/image_reference.txt");
  ASSERT_TRUE(file) << "run from the repository's root";
  int files = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++files;
    for (const auto& [decoder, decode] : decoders()) {
      std::istringstream in(line);
      std::string name;
      int width, height;
      in >> name >> width >> height;
      SCOPED_TRACE(name + " by " + decoder);
      Image image;
      ASSERT_NO_THROW(image = decode(read_bytes(edge_cases() / name)));
      ASSERT_EQ(image.width, width);
      ASSERT_EQ(image.height, height);
      const Difference d = compare(image, in);
      EXPECT_LE(d.cells, 3);
      EXPECT_LE(d.samples, 3);
      if (std::getenv("BAREVISION_VERBOSE"))
        std::cout << name << " by " << decoder << ": " << d.cells << " " << d.samples << "\n";
    }
  }
  EXPECT_EQ(files, 34);
}

TEST(Image, MeetsManifest) {
  std::ifstream manifest(edge_cases() / "manifest.csv");
  if (!manifest) GTEST_SKIP() << "no " << edge_cases();
  std::string line;
  std::getline(manifest, line);
  int files = 0;
  while (std::getline(manifest, line)) {
    const auto comma = line.find(',');
    const std::string name = line.substr(0, comma);
    const std::string expect = line.substr(comma + 1, line.find(',', comma + 1) - comma - 1);
    ++files;
    for (const auto& [decoder, decode] : decoders()) {
      SCOPED_TRACE(name + " by " + decoder);
      const Bytes bytes = read_bytes(edge_cases() / name);
      std::string outcome = "ok";
      try {
        const Image image = decode(bytes);
        EXPECT_EQ(image.pixels.size(), size_t(image.width) * image.height * 3);
      } catch (const BadImage& bad) {
        outcome = "reject";
        EXPECT_TRUE(is_line(bad.what(), ""));
        if (std::getenv("BAREVISION_VERBOSE"))
          std::cout << name << " by " << decoder << ": " << bad.what() << "\n";
      }
      if (expect == "ok" || expect == "reject") {
        EXPECT_EQ(outcome, expect);
      }
    }
  }
  EXPECT_EQ(files, 49);
}

// A file cut off anywhere is detected; no mutation crashes the decoders.
TEST(Image, CutAndMutatedFiles) {
  if (!fs::exists(edge_cases())) GTEST_SKIP() << "no " << edge_cases();
  for (const char* name : {"jpeg_17x17.jpg", "jpeg_33x33_restarts.jpg", "png_palette4_32.png",
                           "png_rgb8_interlaced_32.png", "jpeg_noninterleaved_64x16.jpg"}) {
    SCOPED_TRACE(name);
    const Bytes whole = read_bytes(edge_cases() / name);
    for (const auto& [decoder, decode] : decoders()) {
      for (size_t size = 0; size + 1 < whole.size(); size += 7) {
        const Bytes cut(whole.begin(), whole.begin() + size);
        EXPECT_THROW(decode(cut), BadImage) << size;
      }
      uint32_t random = 12345;
      for (int i = 0; i < 200; ++i) {
        Bytes mutant = whole;
        for (int k = 0; k < 3; ++k) {
          random = random * 1664525 + 1013904223;
          mutant[(random >> 8) % mutant.size()] ^= static_cast<uint8_t>(1u << (random >> 5 & 7));
        }
        try {
          decode(mutant);
        } catch (const BadImage&) {
        }
      }
    }
  }
}

TEST(Image, DamagedPngDataIsNoticed) {
  const Bytes whole = read_bytes(edge_cases() / "png_rgb8_interlaced_32.png");
  if (whole.empty()) GTEST_SKIP() << "no " << edge_cases();
  constexpr char name[] = {'I', 'D', 'A', 'T'};
  const auto data = std::search(whole.begin(), whole.end(), std::begin(name), std::end(name));
  for (int i = 4; i < 200; i += 13) {
    Bytes damaged = whole;
    damaged[data - whole.begin() + i] ^= 4;
    EXPECT_THROW(decode_image(damaged, 0), BadImage) << i;
  }
}

TEST(Image, FourComponentsAreCmykWithoutAdobesWord) {
  const Bytes marked = read_bytes(edge_cases() / "jpeg_cmyk_256.jpg");
  if (marked.empty()) GTEST_SKIP() << "no " << edge_cases();
  constexpr uint8_t app14[] = {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e'};
  const auto at = std::search(marked.begin(), marked.end(), std::begin(app14), std::end(app14));
  ASSERT_NE(at, marked.end());
  Bytes bare(marked.begin(), at);
  bare.insert(bare.end(), at + 16, marked.end());
  for (const auto& [decoder, decode] : decoders())
    EXPECT_EQ(decode(bare).pixels, decode(marked).pixels) << decoder;
}

TEST(Image, ScaledDecodingKeepsAtLeast) {
  if (!fs::exists(edge_cases())) GTEST_SKIP() << "no " << edge_cases();
  const Bytes file = read_bytes(edge_cases() / "jpeg_exif_orientation6_1200x1800.jpg");
  const Image full = decode_image(file, 0);
  EXPECT_EQ(full.width, 1800);
  for (int at_least : {1, 150, 151, 300, 301, 600, 601, 5000}) {
    const Image scaled = decode_image(file, at_least);
    EXPECT_GE(scaled.height, std::min(at_least, 1200));
    if (!have_turbojpeg) continue;
    EXPECT_EQ(scaled.height, at_least <= 150   ? 150
                             : at_least <= 300 ? 300
                             : at_least <= 600 ? 600
                                               : 1200);
  }
}

// A 3x2 image of six grey levels in Exif's eight orientations.
TEST(Image, Orientations) {
  Image stored{.height = 2, .width = 3, .pixels = {}};
  for (uint8_t v = 0; v < 6; ++v) stored.pixels.insert(stored.pixels.end(), 3, v);
  const std::vector<int> expected[] = {{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                       {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                       {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image image = upright(stored, orientation);
    EXPECT_EQ(image.width, orientation < 5 ? 3 : 2);
    std::vector<int> values;
    for (size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
    EXPECT_EQ(values, expected[orientation - 1]) << orientation;
  }
}

TEST(Image, ExifOfBothByteOrders) {
  const Bytes little = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
  const Bytes big = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0};
  EXPECT_EQ(exif_orientation(little), 6);
  EXPECT_EQ(exif_orientation(big), 6);
  for (size_t size = 0; size < big.size(); ++size)
    EXPECT_EQ(exif_orientation(std::span(big).first(size)), 1);
}

Bytes text(const std::string& s) { return {s.begin(), s.end()}; }

TEST(Image, PortableMapsAndBitmaps) {
  Bytes ppm = text("P6\n# a comment\n2 1\n255\n");
  ppm.insert(ppm.end(), {1, 2, 3, 250, 251, 252});
  const Image image = decode_image(ppm, 0);
  EXPECT_EQ(image.width, 2);
  EXPECT_EQ(image.pixels, (Bytes{1, 2, 3, 250, 251, 252}));
  ppm.pop_back();
  EXPECT_THROW(decode_image(ppm, 0), BadImage);

  Bytes bmp(54, 0);
  bmp[0] = 'B', bmp[1] = 'M', bmp[10] = 54, bmp[14] = 40, bmp[18] = 1, bmp[22] = 2, bmp[26] = 1;
  bmp[28] = 24;
  bmp.insert(bmp.end(), {3, 2, 1, 0, 6, 5, 4, 0});  // bottom row first, BGR, rows of 4 bytes
  EXPECT_EQ(decode_image(bmp, 0).pixels, (Bytes{4, 5, 6, 1, 2, 3}));
  bmp.pop_back();
  EXPECT_THROW(decode_image(bmp, 0), BadImage);
}

// A JPEG of three components whose scans are almost empty.
Bytes empty_scans(int width, int height, int scans) {
  const auto side = [](int n) { return std::string{char(n >> 8), char(n)}; };
  const auto segment = [&](char marker, const std::string& s) {
    return std::string{'\xFF', marker} + side(int(s.size()) + 2) + s;
  };
  const std::string one_code = '\1' + std::string(15, '\0');
  std::string file = "\xFF\xD8" + segment('\xDB', '\0' + std::string(64, '\1'));
  file += segment(
      '\xC2', '\x08' + side(height) + side(width) + std::string("\3\1\x11\0\2\x11\0\3\x11\0", 10));
  file += segment('\xC4', '\0' + one_code + '\0') + segment('\xC4', '\x10' + one_code + '\xE0');
  file += segment('\xDA', std::string("\3\1\0\2\0\3\0\0\0\0", 10)) + '\0';
  for (int i = 1; i < scans; ++i)
    file += segment('\xDA', std::string{1, char(1 + i % 3), 0, 1, 63, 0}) + '\0';
  return text(file + "\xFF\xD9");
}

TEST(Image, RefusesCostlyJpegs) {
  const auto refusal = [](const Bytes& file) {
    return error_of<BadImage>([&] { decode_image(file, 0); });
  };
  EXPECT_EQ(refusal(empty_scans(16384, 8192, 490)),
            "the image claims 16384x8192 pixels, too many for a file of 5530 bytes");
  EXPECT_EQ(refusal(empty_scans(4096, 4096, 60)),
            "JPEG of 4096x4096 pixels with more than 16 scans of each");
  Bytes sequential = empty_scans(4096, 4096, 10);
  *std::find(sequential.begin(), sequential.end(), 0xC2) = 0xC0;
  EXPECT_EQ(refusal(sequential), "JPEG of 4096x4096 pixels with more than 2 scans of each");
  for (const auto& [decoder, decode] : decoders()) {
    EXPECT_EQ(decode(empty_scans(2000, 1500, 40)).width, 2000) << decoder;
    EXPECT_EQ(decode(empty_scans(100, 100, 490)).width, 100) << decoder;
  }
}

// Given such tables, stb_image would write beyond its arrays.
TEST(Image, RefusesHuffmanTablesBeyondTheirBounds) {
  const Bytes good = empty_scans(8, 8, 1);
  const auto table = std::find(good.begin() + 80, good.end(), 0xC4) - good.begin();
  EXPECT_EQ(decode_without_turbo(good).width, 8);
  Bytes many = good;  // 257 symbols
  many[table + 1] = 1, many[table + 2] = 2 + 17 + 1;
  many[table + 4] = 1, many[table + 19] = 255, many[table + 18] = 1;
  many.insert(many.begin() + table + 21, 256, 0);
  Bytes past_the_end = good;
  past_the_end[table + 4] = 2;
  for (const Bytes& bad : {many, past_the_end})
    for (const auto& [decoder, decode] : decoders())
      EXPECT_EQ(error_of<BadImage>([&] { decode(bad); }), "damaged JPEG Huffman table") << decoder;
}

TEST(Image, PortableMapsScaleTheirSamples) {
  const auto grey = [](const std::string& file) { return decode_image(text(file), 0).pixels[0]; };
  EXPECT_EQ(grey("P5 1 1 100 2"), 128);
  EXPECT_EQ(grey(std::string("P5 1 1 65535 \x80\0", 15)), 128);
  EXPECT_EQ(grey("P5 1 # a comment\r1 255 A"), 'A');
  for (const std::string largest : {"0", "65536", "99999999999", "-1"}) {
    const Bytes file = text("P5 1 1 " + largest + " AA");
    EXPECT_TRUE(error_of<BadImage>([&] { decode_image(file, 0); }).starts_with("damaged PNM"));
  }
}

TEST(Image, BitmapFromTheTop) {
  Bytes bmp(54, 0);
  bmp[0] = 'B', bmp[1] = 'M', bmp[10] = 54, bmp[14] = 40, bmp[18] = 1, bmp[26] = 1, bmp[28] = 24;
  bmp[22] = 0xFE, bmp[23] = bmp[24] = bmp[25] = 0xFF;  // -2 rows
  bmp.insert(bmp.end(), {3, 2, 1, 0, 6, 5, 4, 0});
  EXPECT_EQ(decode_image(bmp, 0).pixels, (Bytes{1, 2, 3, 4, 5, 6}));
}

TEST(Image, PngMessagesHaveNoBytesOfTheFile) {
  Bytes png = text("\x89PNG\r\n\x1a\n");
  png.insert(png.end(), {0, 0, 0, 0, 'I', '\n', 'A', 'T', 1, 2, 3, 4});
  EXPECT_EQ(error_of<BadImage>([&] { decode_image(png, 0); }),
            "damaged PNG (unknown kind of critical chunk)");
}

// The decoders allocate their memory before they refuse a table that assigns too many codes.
TEST(Image, LargeImagesAreDecodedOneAtATime) {
  Bytes file = empty_scans(16384, 8192, 1);
  const auto table = std::find(file.begin() + 80, file.end(), 0xC4) - file.begin();
  file[table + 2] += 2, file[table + 4] = 3;
  file.insert(file.begin() + table + 21, 2, 0);
  Bytes comment(2 + 65535, 'x');
  comment[0] = 0xFF, comment[1] = 0xFE, comment[2] = comment[3] = 0xFF;
  for (int i = 0; i < 2; ++i) file.insert(file.begin() + 2, comment.begin(), comment.end());
  for (const auto& [decoder, decode] : decoders()) {
    SCOPED_TRACE(decoder);
    auto large = wait_if_large(int64_t{1} << 30);
    EXPECT_TRUE(large.owns_lock());
    EXPECT_FALSE(wait_if_large(1 << 20).owns_lock());  // small ones don't wait
    std::atomic<bool> done = false;
    std::jthread other([&] {
      EXPECT_THROW(decode(file), BadImage);
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_FALSE(done);
    large.unlock();
  }
}

// A GIF of one pixel whose codes each stand for thousands of pixels.
Bytes long_codes(size_t bytes) {
  constexpr int clear = 256, first = 258, most = 4096;
  std::string data;
  uint32_t buffer = 0;
  int bits = 0, width = 9;
  const auto put = [&](int code) {
    buffer |= uint32_t(code) << bits;
    for (bits += width; bits >= 8; bits -= 8, buffer >>= 8) data += char(buffer);
  };
  put(clear);
  put(0);
  for (int code = first; code < most && data.size() < bytes; ++code) {
    put(code);
    if (code + 1 == 1 << width && width < 12) ++width;
  }
  for (int i = 0; i < 4000 && data.size() < bytes; ++i) put(most - 1);
  data += char(buffer);
  std::string file = "GIF89a" + std::string("\1\0\1\0\xF0\0\0\1\2\3\4\5\6", 13) +
                     std::string(",\0\0\0\0\1\0\1\0\0\x08", 11);
  for (size_t i = 0; i < data.size(); i += 255)
    file += char(std::min<size_t>(255, data.size() - i)) + data.substr(i, 255);
  return text(file + std::string("\0;", 2));
}

TEST(Image, RefusesGifsOfMoreDataThanPixels) {
  EXPECT_EQ(decode_image(long_codes(20), 0).pixels, (Bytes{1, 2, 3}));
  EXPECT_EQ(error_of<BadImage>([] { decode_image(long_codes(10000), 0); }),
            "damaged GIF (more data than pixels)");
}

TEST(Image, SizesUpToTheirLimits) {
  const auto fits = [](int64_t width, int64_t height, size_t file_bytes) {
    return error_of<BadImage>([&] { check_image_size(width, height, file_bytes); }) == "no error";
  };
  constexpr size_t large = 1 << 20;
  EXPECT_TRUE(fits(32768, 4096, large));
  EXPECT_FALSE(fits(32769, 1, large));
  EXPECT_FALSE(fits(1, 32769, large));
  EXPECT_FALSE(fits(16384, 8193, large));
  EXPECT_TRUE(fits(4096, 4096, 0));
  EXPECT_FALSE(fits(4097, 4096, 3));
  EXPECT_TRUE(fits(4097, 4096, 4));
}

// Reserves address space without allocating memory.
TEST(Image, RefusesFilesLargerThanAGibibyte) {
  constexpr size_t bytes = (size_t{1} << 30) + 1;
  void* file = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(file, MAP_FAILED);
  const std::span whole(static_cast<const uint8_t*>(file), bytes);
  const auto refusal = [](std::span<const uint8_t> f) {
    return error_of<BadImage>([&] { decode_image(f, 0); });
  };
  EXPECT_EQ(refusal(whole), "the file is larger than 1 GiB");
  EXPECT_TRUE(refusal(whole.first(bytes - 1)).starts_with("not an image of a known format"));
  munmap(file, bytes);
}

TEST(Image, RefusesGiantsBeforeAllocating) {
  for (const char* size : {"40000 1", "1 40000", "30000 30000", "999999999999 3", "0 5"}) {
    const Bytes ppm = text("P6\n" + std::string(size) + "\n255\n");
    EXPECT_TRUE(error_of<BadImage>([&] { decode_image(ppm, 0); }).starts_with("the image")) << size;
  }
  EXPECT_THROW(decode_image({}, 0), BadImage);
}

}  // namespace
}  // namespace bv::test
