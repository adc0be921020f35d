#include "tests/fuzz/pictures/seeds.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/data/encode.h"
#include "tests/files.h"

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>

namespace bv::test::fuzz {
namespace {

std::string little(uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += char(value >> 8 * i);
  return text;
}
std::string big(uint32_t value) {
  std::string text = little(value, 4);
  return {text.rbegin(), text.rend()};
}

// Bytes that are neither constant nor noise.
std::string pattern(size_t n) {
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += char(i % 7 * 31 + i / 5);
  return bytes;
}

uint32_t crc32(const std::string& bytes) {
  uint32_t c = ~0u;
  for (const char byte : bytes) {
    c ^= uint8_t(byte);
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
  }
  return ~c;
}

std::string chunk(const std::string& name, const std::string& content) {
  return big(uint32_t(content.size())) + name + content + big(crc32(name + content));
}

std::string compressed(std::string bytes) {
  int size = 0;
  unsigned char* packed = stbi_zlib_compress(reinterpret_cast<unsigned char*>(bytes.data()),
                                             int(bytes.size()), &size, 8);
  std::string out(reinterpret_cast<char*>(packed), size_t(size));
  std::free(packed);
  return out;
}

// The rows of an image, each preceded by its filter's number.
std::string png_rows(int width, int height, int bits_per_pixel) {
  std::string rows;
  if (width == 0) return rows;
  for (int y = 0; y < height; ++y)
    rows += char(y % 5) + pattern(size_t(width * bits_per_pixel + 7) / 8);
  return rows;
}

std::string png(int depth, int colour, bool interlaced, bool transparency) {
  constexpr int width = 13, height = 11, channels[] = {1, 0, 3, 1, 2, 0, 4};
  constexpr int passes[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  const int bits = depth * channels[colour];
  std::string rows;
  if (!interlaced) rows = png_rows(width, height, bits);
  for (const auto& [x, y, dx, dy] : passes)
    if (interlaced) rows += png_rows((width - x + dx - 1) / dx, (height - y + dy - 1) / dy, bits);
  const std::string kind = {char(depth), char(colour), 0, 0, char(interlaced)};
  std::string file = "\x89PNG\r\n\x1a\n" + chunk("IHDR", big(width) + big(height) + kind);
  if (colour == 3) file += chunk("PLTE", pattern(3 * std::min(1 << depth, 20)));
  if (transparency)
    file +=
        chunk("tRNS", colour == 3 ? pattern(2) : std::string(size_t(2 * channels[colour]), '\1'));
  const std::string data = compressed(rows);
  return file + chunk("IDAT", data.substr(0, 20)) + chunk("IDAT", data.substr(20)) +
         chunk("IEND", "");
}

// Grey, 8x6, with its own Huffman tables, which the compressor here doesn't write.
constexpr const char* png_with_tables =
    "89504e470d0a1a0a0000000d4948445200000008000000060800000000db6e8027000000284944415478da25"
    "89810d00200cc2dae9ff7771968a90942610542e13476068868535773aeff0f700a27604053d1a2ff1000000"
    "0049454e44ae426082";

std::vector<std::string> png_seeds() {
  std::vector<std::string> files = {from_hex(png_with_tables)};
  for (const auto& [colour, depths] : std::map<int, std::vector<int>>{
           {0, {1, 2, 4, 8, 16}}, {2, {8, 16}}, {3, {1, 2, 4, 8}}, {4, {8, 16}}, {6, {8, 16}}})
    for (const int depth : depths)
      for (const bool interlaced : {false, true})
        for (const bool transparency : {false, true})
          if (!transparency || colour < 4)
            files.push_back(png(depth, colour, interlaced, transparency));
  return files;
}

// A BMP with an information header of 12 (old), 40, 108 or 124 bytes, and masks for 16 or 32 bits.
std::string bmp(int bits, uint32_t header, int height) {
  constexpr int width = 9;
  const bool old = header == 12, masked = !old && (bits == 16 || bits == 32);
  std::string info = little(header, 4) + little(width, old ? 2 : 4) +
                     little(uint32_t(height), old ? 2 : 4) + little(1, 2) +
                     little(uint32_t(bits), 2);
  if (!old) info += little(masked ? 3 : 0, 4) + std::string(20, '\0');
  if (masked)
    info += bits == 16 ? little(0xF800, 4) + little(0x7E0, 4) + little(0x1F, 4)
                       : little(0xFF, 4) + little(0xFF00, 4) + little(0xFF0000, 4);
  if (header > 40) info += little(0xFF000000, 4);
  info.resize(std::max<size_t>(info.size(), header));
  if (bits < 16) info += pattern((old ? 3 : 4) << bits);
  if (old && bits < 16) info += std::string(10, '\0');  // stb_image counts these as header
  const std::string rows = pattern(size_t((width * bits + 31) / 32 * 4 * std::abs(height)));
  const auto offset = uint32_t(14 + info.size());
  return "BM" + little(offset + uint32_t(rows.size()), 4) + little(0, 4) + little(offset, 4) +
         info + rows;
}

// A BMP in runs, with a row of pixels as they are and a jump.
std::string run_length_bmp(int bits, uint32_t header) {
  const std::string info = little(header, 4) + little(9, 4) + little(5, 4) + little(1, 2) +
                           little(uint32_t(bits), 2) + little(bits == 8 ? 1 : 2, 4) +
                           std::string(header - 20, '\0') + pattern(4 << bits);
  const std::string rows =
      "\x09\x31" + std::string("\0\0\0\x05", 4) +
      (bits == 8 ? std::string("\1\2\3\4\5\0", 6) : std::string("\x12\x34\x50\0", 4)) +
      std::string("\0\2\1\1\3\x22\0\0\5\x10\0\1", 12);
  const auto offset = uint32_t(14 + info.size());
  return "BM" + little(offset + uint32_t(rows.size()), 4) + little(0, 4) + little(offset, 4) +
         info + rows;
}

std::vector<std::string> bmp_seeds() {
  std::vector<std::string> files;
  for (const int bits : {1, 4, 8, 16, 24, 32})
    for (const uint32_t header : {12, 40, 108, 124})
      if (header != 12 || bits == 24 || bits < 16) files.push_back(bmp(bits, header, 7));
  files.push_back(bmp(24, 40, -7));
  for (const uint32_t header : {40, 64, 124})
    for (const int bits : {4, 8}) files.push_back(run_length_bmp(bits, header));
  return files;
}

std::vector<std::string> pnm_seeds() {
  return {"P6\n# made here\n5 4\n255\n" + pattern(60),
          "P5 7 3\r255 " + pattern(21),
          "P6 3 2 65535\n" + pattern(36),
          "P5\n4 4\n1000\n" + pattern(32),
          "P4\n# bits\n13 5\n" + pattern(10),
          "P1 5 2\n10101\n0 1 0 1 0\n",
          "P2\n3 2\n# grey\n100\n0 50 100\n7 8 99\n",
          "P3 2 2 255 1 2 3  4 5 6\n7 8 9\n10 11 255"};
}

// LZW codes of 9 bits and more, in blocks of up to 255 bytes.
std::string gif_data(const std::string& pixels) {
  constexpr int clear = 256, end = 257, most = 4096;
  std::string bytes;
  uint32_t buffer = 0;
  int bits = 0, code_bits = 9, next = end + 1;
  const auto put = [&](int code) {
    buffer |= uint32_t(code) << bits;
    for (bits += code_bits; bits >= 8; bits -= 8, buffer >>= 8) bytes += char(buffer);
  };
  std::map<std::string, int> codes;
  const auto code_of = [&](const std::string& s) {
    return s.size() == 1 ? uint8_t(s[0]) : codes.at(s);
  };
  put(clear);
  std::string text;
  for (const char pixel : pixels) {
    if (text.empty() || codes.contains(text + pixel)) {
      text += pixel;
      continue;
    }
    put(code_of(text));
    if (next < most) codes[text + pixel] = next++;
    if (next > 1 << code_bits && code_bits < 12) ++code_bits;
    text = pixel;
  }
  put(code_of(text));
  put(end);
  bytes += char(buffer);
  std::string blocks = "\x08";
  for (size_t i = 0; i < bytes.size(); i += 255) {
    const std::string block = bytes.substr(i, 255);
    blocks += char(block.size()) + block;
  }
  return blocks + '\0';
}

std::string gif(int width, int height, bool interlaced, bool local_palette, bool transparent) {
  const std::string palette = pattern(3 * 256),
                    size = little(uint32_t(width), 2) + little(uint32_t(height), 2);
  std::string pixels = pattern(size_t(width) * size_t(height) / 2);
  pixels.resize(size_t(width) * size_t(height));
  std::string file = "GIF89a" + size + char(local_palette ? 0 : 0xF7) + '\1' + '\0';
  if (!local_palette) file += palette;
  if (transparent) file += std::string("\x21\xF9\x04\x01\x00\x00\x1F\x00", 8);
  file += "," + little(0, 4) + size + char((interlaced ? 0x40 : 0) | (local_palette ? 0x87 : 0));
  if (local_palette) file += palette;
  return file + gif_data(pixels) + ";";
}

std::vector<std::string> gif_seeds() {
  return {gif(12, 10, false, false, false), gif(12, 10, true, true, true),
          gif(70, 40, false, true, false), gif(70, 40, true, false, true)};
}

std::vector<uint8_t> samples(size_t count) {
  const std::string bytes = pattern(count);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> webp_seeds() {
  if (!have_webp) return {};
  constexpr int width = 21, height = 13;
  const auto rgba = samples(size_t(4 * width * height));
  const std::string lossless = encode_webp(width, height, rgba, true),
                    lossy = encode_webp(width, height, rgba, false);
  const std::string exif("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22);
  return {lossless, lossy,
          webp_file(webp_canvas(8 + 16, width, height) + webp_chunks(lossless) +
                    webp_chunk("EXIF", exif)),
          webp_animation(lossless, width, height, 4, 2, 40, 30)};
}

std::vector<std::string> tiff_seeds() {
  if (!have_tiff) return {};
  constexpr int width = 19, height = 11;
  std::vector<std::string> files;
  const auto add = [&](TiffPage page) {
    page.width = width, page.height = height;
    page.samples = samples(size_t(width * height * page.samples_per_pixel * 2));
    files.push_back(encode_tiff({page}));
  };
  for (const int compression : {1, 5, 7, 8, 32773}) {
    add({.compression = compression});
    add({.compression = compression, .rows_per_strip = 8, .planar = true});
    add({.compression = compression, .tile = 16});
    add({.samples_per_pixel = 1, .photometric = 1, .compression = compression, .orientation = 6});
  }
  for (const int photometric : {0, 1, 3})
    for (const int bits : {1, 2, 4, 8, 16})
      if (photometric != 3 || bits < 16)
        add({.bits = bits, .samples_per_pixel = 1, .photometric = photometric});
  for (const int extra : {0, 1, 2}) {
    add({.samples_per_pixel = 4, .extra = extra});
    add({.samples_per_pixel = 2, .photometric = 1, .extra = extra, .orientation = 3});
    add({.bits = 16, .samples_per_pixel = 4, .compression = 5, .extra = extra});
  }
  for (const int method : {2, 3, 4})
    add({.bits = 1, .samples_per_pixel = 1, .photometric = 0, .compression = method});
  add({.samples_per_pixel = 4, .photometric = 5});
  add({.photometric = 6, .compression = 7});
  for (const char* mode : {"wb", "w8"}) add({.bits = 16, .compression = 5, .mode = mode});
  return files;
}

std::vector<std::string> found_seeds() {
  namespace fs = std::filesystem;
  constexpr uintmax_t small = 24 << 10;
  const char* data = std::getenv("BAREVISION_DATA");
  const fs::path folder = fs::path(data ? data : "../shared/data") / "image_edge_cases";
  std::map<fs::path, std::string> files;  // ordered by name
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.file_size() > 0 && entry.file_size() <= small)
      files[entry.path()] = contents(entry.path());
  std::vector<std::string> seeds;
  for (auto& [path, bytes] : files) seeds.push_back(std::move(bytes));
  return seeds;
}

}  // namespace

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += char(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<Seed> picture_seeds() {
  std::vector<Seed> seeds;
  for (const auto& files : {jpeg_seeds(), png_seeds(), bmp_seeds(), pnm_seeds(), gif_seeds(),
                            webp_seeds(), tiff_seeds(), found_seeds()})
    for (const std::string& file : files)
      seeds.push_back(
          {format_of({reinterpret_cast<const uint8_t*>(file.data()), file.size()}), file});
  return seeds;
}

void sign_png(std::string& file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    size_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | uint8_t(file[at + size_t(i)]);
    if (length > file.size() - at - 12) return;
    file.replace(at + 8 + length, 4, big(crc32(file.substr(at + 4, 4 + length))));
    at += 12 + length;
  }
}

}  // namespace bv::test::fuzz
