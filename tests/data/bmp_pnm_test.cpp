// BMP and PNM files of rare forms. The values agree with Pillow's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/decode/decode.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of(const std::string& file) { return {file.begin(), file.end()}; }

// The pixels, after a look at the header alone, which must give the same size.
Bytes pixels(const std::string& file) {
  const Bytes bytes = bytes_of(file);
  FileView view(bytes);
  const HeaderSize size = check_header(view);
  const Image image = decode_image(bytes, 0);
  EXPECT_EQ(size.height, image.height);
  EXPECT_EQ(size.width, image.width);
  return image.pixels;
}
std::string refusal(const std::string& file) {
  const Bytes bytes = bytes_of(file);
  return error_of<BadImage>([&] { decode_image(bytes, 0); });
}
Bytes grey(const std::string& file) {
  Bytes values;
  const Bytes rgb = pixels(file);
  for (size_t i = 0; i < rgb.size(); i += 3) values.push_back(rgb[i]);
  return values;
}

std::string little(uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

struct Form {
  uint32_t bits, compression = 0, header = 40;
  int width = 4, height = 2;
};
// Colour i of the palette is red i + 1, green 2 i, blue 100 + i.
std::string bmp(const Form& f, const std::string& data, uint32_t colours = 16) {
  const bool old = f.header == 12;
  const auto width = static_cast<uint32_t>(f.width), height = static_cast<uint32_t>(f.height);
  std::string info = little(f.header, 4) + little(width, old ? 2 : 4) + little(height, old ? 2 : 4);
  info += little(1, 2) + little(f.bits, 2);
  if (!old) info += little(f.compression, 4) + std::string(f.header - 20, '\0');
  for (uint32_t i = 0; i < colours; ++i)
    info += little(100 + i, 1) + little(2 * i, 1) + little(i + 1, 1) + (old ? "" : little(0, 1));
  const auto at = static_cast<uint32_t>(14 + info.size());
  return "BM" + little(at + static_cast<uint32_t>(data.size()), 4) + little(0, 4) + little(at, 4) +
         info + data;
}

Bytes of_palette(const Bytes& indices) {
  Bytes rgb;
  for (const uint8_t i : indices)
    rgb.insert(rgb.end(), {static_cast<uint8_t>(i + 1), static_cast<uint8_t>(2 * i),
                           static_cast<uint8_t>(100 + i)});
  return rgb;
}

// The rows of a BMP begin at the bottom.
TEST(Bmp, InRunsIsRead) {
  const std::string eight("\4\3\0\0\0\3\5\6\7\0\1\2\0\1", 14);
  EXPECT_EQ(pixels(bmp({8, 1}, eight)), of_palette({5, 6, 7, 2, 3, 3, 3, 3}));
  const std::string four("\4\x12\0\0\0\3\x45\x60\1\x70\0\1", 12);
  EXPECT_EQ(pixels(bmp({4, 2}, four)), of_palette({4, 5, 6, 7, 1, 2, 1, 2}));
  // A jump of one to the right and one row; what it passes has colour 0. No end mark is needed
  // after the last pixel, and a run may not leave its row.
  EXPECT_EQ(pixels(bmp({8, 1}, std::string("\1\3\0\2\1\1\2\4", 8))),
            of_palette({0, 0, 4, 4, 3, 0, 0, 0}));
  EXPECT_EQ(pixels(bmp({8, 1}, std::string("\x9\3\0\0\4\1", 6))),
            of_palette({1, 1, 1, 1, 3, 3, 3, 3}));
  EXPECT_EQ(pixels(bmp({8, 1}, std::string("\1\3\0\1", 4))), of_palette({0, 0, 0, 0, 3, 0, 0, 0}));
  EXPECT_EQ(pixels(bmp({8, 1, 64}, eight)), of_palette({5, 6, 7, 2, 3, 3, 3, 3}));
  EXPECT_EQ(pixels(bmp({8, 1, 40, 4, -2}, eight)), of_palette({3, 3, 3, 3, 5, 6, 7, 2}));
  EXPECT_EQ(refusal(bmp({8, 1}, eight.substr(0, 8))), "BMP data is cut off");
  EXPECT_EQ(refusal(bmp({8, 1}, "")), "BMP data is cut off");
  EXPECT_EQ(refusal(bmp({8, 1, 40, 30000, 30000}, eight)),
            "the image claims 30000x30000 pixels, more than 32768 per side or 134 million");
}

// stb_image takes the last four colours of an OS/2 palette for a part of the header.
TEST(Bmp, OfOs2IsRead) {
  const std::string rows("\1\2\3\xF\0\4\5\6", 8);
  for (const uint32_t header : {12u, 40u, 64u})
    EXPECT_EQ(pixels(bmp({8, 0, header}, rows)), of_palette({0, 4, 5, 6, 1, 2, 3, 15})) << header;
  EXPECT_EQ(pixels(bmp({4, 0, 12}, std::string("\x12\x3F\0\0\x45\x60\0\0", 8))),
            of_palette({4, 5, 6, 0, 1, 2, 3, 15}));
  EXPECT_EQ(pixels(bmp({1, 0, 12}, std::string("\x50\0\0\0\xA0\0\0\0", 8), 2)),
            of_palette({1, 0, 1, 0, 0, 1, 0, 1}));
  // The smallest file has fewer bytes than today's header.
  EXPECT_EQ(pixels(bmp({24, 0, 12, 1, 1}, std::string("\3\2\1\0", 4), 0)), (Bytes{1, 2, 3}));
}

TEST(Bmp, OfOtherFormsIsNamed) {
  const std::string rest = ": not read, convert it", data(64, '\0');
  EXPECT_EQ(refusal(bmp({0, 4}, data)), "BMP with a JPEG in it" + rest);
  EXPECT_EQ(refusal(bmp({0, 5}, data)), "BMP with a PNG in it" + rest);
  EXPECT_EQ(refusal(bmp({32, 6}, data)), "BMP of 32 bits with compression 6" + rest);
  EXPECT_EQ(refusal(bmp({24, 1}, data)), "BMP of 24 bits with compression 1" + rest);
  EXPECT_EQ(refusal(bmp({2}, data)), "BMP of 2 bits per pixel" + rest);
  EXPECT_EQ(refusal(bmp({24, 0, 52}, data)), "BMP with a header of 52 bytes" + rest);
  EXPECT_EQ(refusal(bmp({1, 3, 64}, data)), "compressed BMP of OS/2" + rest);
  EXPECT_EQ(refusal(bmp({24, 0, 64}, data)), "BMP of OS/2 without a palette" + rest);
}

TEST(Pnm, InTextIsRead) {
  EXPECT_EQ(grey("P1\n# bits\n3 2\n101\n0 1 0\n"), (Bytes{0, 255, 0, 255, 0, 255}));
  EXPECT_EQ(grey("P2 3 1 255 0 7\n# seven\n255"), (Bytes{0, 7, 255}));
  EXPECT_EQ(grey("P2 3 1\n100\n0 50 100"), (Bytes{0, 128, 255}));
  EXPECT_EQ(grey("P2 2 1 65535 256 65535"), (Bytes{1, 255}));
  EXPECT_EQ(pixels("P3\n2 1\n255\n1 2 3\n4 5 6\n"), (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(pixels("P3 1 1 7 0 7 9"), (Bytes{0, 255, 255}));
  EXPECT_EQ(refusal("P3 2 1 255 1 2 3 4 5"), "PNM data is cut off");
  EXPECT_EQ(refusal("P2 2 1 255 12         "), "PNM data is cut off");
  EXPECT_EQ(refusal("P2 2 1 255 1 -2"), "damaged PNM (a sample that is not a number)");
  EXPECT_EQ(refusal("P1 9 1 10101"), "PNM data is cut off");
  EXPECT_TRUE(is_line(refusal("P1 is a good plan"), "the image has no pixels"));
}

TEST(Pnm, OfBitsIsRead) {
  EXPECT_EQ(grey("P4 10 2\n\xA5\x40\xFF\x80"),
            (Bytes{0, 255, 0, 255, 255, 0, 255, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255}));
  EXPECT_EQ(refusal("P4 10 2\n\xA5\x40\xFF"), "PNM data is cut off");
}

}  // namespace
}  // namespace bv::test
