// Feeds damaged pictures of every format to decode_image, and JPEGs to both of its decoders. A
// mutant passes if it is decoded to an image of its size or refused by a BadImage of one line,
// takes memory in proportion to its pixels and at most a few seconds; parts of JPEGs must equal the
// same parts of the whole. Built with the address and undefined-behaviour sanitizers:
//   fuzz_pictures [FIRST [COUNT]]    mutants by number; each depends on its number and the seeds
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/decode/decode.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/pictures/seeds.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/watch.h"

// An allocation above this size ends the program: no small file may claim so much.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=512:allocator_may_return_null=0:detect_leaks=1:handle_abort=1";
}

namespace bv::test::fuzz {
namespace {

constexpr Mutants mutants{.few = 1200, .all = 12000};
constexpr unsigned max_seconds = 10;
constexpr size_t fixed_bytes = 4 << 20, bytes_per_pixel = 40;
constexpr size_t free_pixels = 1 << 24, pixels_per_byte = 1024;  // any file may claim these

class PictureFuzzer {
 public:
  std::string counts() const { return std::to_string(decoded_) + " decoded, the rest refused\n"; }

  // Runs one mutant. Returns the problem; empty if there is none.
  std::string run(uint64_t number) {
    Mutator m(number);
    const Seed& seed = seeds_[m.below(seeds_.size())];
    std::string file = seed.bytes;
    if (m.one_in(16)) cross(m, seed.format, file);
    if (m.one_in(150)) {
      claim(m, seed.format, file);
    } else if (seed.format == Format::jpeg && m.one_in(2)) {
      damage_segment(m, file);
    } else if (m.one_in(3)) {
      damage_start(m, file);
    } else {
      m.damage(file);
    }
    if (seed.format == Format::png && !m.one_in(16)) sign_png(file);
    const std::vector<uint8_t> bytes(file.begin(), file.end());
    const int at_least = m.one_in(4) ? 1 + int(m.below(20)) : 0;
    const size_t scale = at_least ? 8 : 1;  // at most
    std::string problem = watched(number, bytes, scale, [&] { return decode(bytes, at_least); });
    if (seed.format == Format::jpeg)
      problem += watched(
          number, bytes, 8, [&] { return decode_part(m, bytes); }, pixels_of_jpeg(bytes));
    if (have_turbojpeg && seed.format == Format::jpeg)
      problem += watched(number, bytes, 1, [&] {
        const JpegInfo info = inspect_jpeg(bytes);
        return upright(decode_jpeg_stb(bytes, info), info.orientation);
      });
    return problem;
  }

 private:
  // A file that the header check refuses must not decode, either.
  static Image decode(const std::vector<uint8_t>& bytes, int at_least) {
    std::string refusal;
    try {
      FileView view(bytes);
      check_header(view);
    } catch (const BadImage& bad) {
      refusal = bad.what();
    }
    Image image = decode_image(bytes, at_least);
    if (!refusal.empty()) throw std::runtime_error("decoded, though its header: " + refusal);
    return image;
  }

  // Any rectangle decoded at any scale must equal that part of the whole image, despite the damage.
  static Image decode_part(Mutator& m, const std::vector<uint8_t>& bytes) {
    const double shrink = double(1 << m.below(4));
    Region of;
    if (m.one_in(4))
      of = {int(m.below(8)), int(m.below(8)), 1 + int(m.below(16)), 1 + int(m.below(16))};
    View whole = decode_view(
        bytes, [&](int height, int width) { return whole_image(height, width, shrink); }, of);
    const auto some = [&](int height, int width) {
      Box part{.top = double(m.below(size_t(height))), .left = double(m.below(size_t(width)))};
      part.height = 1 + double(m.below(size_t(height)));
      part.width = 1 + double(m.below(size_t(width)));
      return DecodeRequest{part, shrink};
    };
    const View part = decode_view(bytes, some, of);
    for (int y = 0; y < part.at.height; ++y) {
      const size_t row = size_t(part.at.top + y) * size_t(whole.width) + size_t(part.at.left);
      if (!std::equal(
              &part.pixels.pixels[3 * size_t(y) * size_t(part.at.width)],
              &part.pixels.pixels[3 * size_t(y) * size_t(part.at.width)] + 3 * part.at.width,
              &whole.pixels.pixels[3 * row]))
        throw std::runtime_error("a part at " + std::to_string(whole.dct_scale) +
                                 "/8 differs from the whole");
    }
    return std::move(whole.pixels);
  }

  static size_t pixels_of_jpeg(const std::vector<uint8_t>& bytes) try {
    const JpegInfo info = inspect_jpeg(bytes);
    return size_t(info.width + 31) * size_t(info.height + 31);  // whole MCUs
  } catch (const BadImage&) {
    return 0;
  }

  // `file_pixels`: the picture's pixels, if only a small region of it may be decoded.
  std::string watched(uint64_t number, const std::vector<uint8_t>& bytes, size_t scale,
                      const std::function<Image()>& decode, size_t file_pixels = 0) {
    std::string problem;
    size_t pixels = free_pixels + pixels_per_byte * bytes.size();
    arm(max_seconds);
    begin_watch(number, 0);
    try {
      const Image image = decode();
      ++decoded_;
      pixels = size_t(image.width) * size_t(image.height);
      if (image.width < 1 || image.height < 1 || image.pixels.size() != 3 * pixels)
        problem = "its pixels are not of its size";
      if (pixels > free_pixels + pixels_per_byte * bytes.size())
        problem = "has " + std::to_string(pixels) + " pixels";
      pixels = std::max(scale * scale * size_t(image.width + 31) * size_t(image.height + 31),
                        file_pixels);
    } catch (const BadImage& bad) {
      const std::string line = bad.what();
      if (line.empty() || line.size() > 1000 || line.find('\n') != std::string::npos)
        problem = "its message is not one line: " + line;
    } catch (const std::exception& e) {
      problem = std::string("another exception: ") + e.what();
    }
    const size_t taken = end_watch();
    if (taken > fixed_bytes + bytes_per_pixel * pixels + 8 * bytes.size())
      problem += " took " + std::to_string(taken) + " bytes for " + std::to_string(bytes.size());
    return problem;
  }

  // Joins the front of one picture with the rest of another.
  void cross(Mutator& m, Format format, std::string& file) {
    const Seed& other = seeds_[m.below(seeds_.size())];
    if (other.format != format) return;
    file = file.substr(0, m.below(file.size())) + other.bytes.substr(m.below(other.bytes.size()));
  }

  // Writes into the header a size that the data doesn't have, up to a huge one; for a JPEG also
  // repeats its last scan.
  static void claim(Mutator& m, Format format, std::string& file) {
    const auto put = [&](size_t at, int bytes, bool big_endian) {
      const size_t value = m.below(size_t{1} << (1 + m.below(16)));
      for (int i = 0; i < bytes && at + size_t(i) < file.size(); ++i)
        file[at + size_t(i)] = char(value >> 8 * (big_endian ? bytes - 1 - i : i));
    };
    if (format == Format::png) put(16, 4, true), put(20, 4, true);
    if (format == Format::bmp) put(18, 4, false), put(22, 4, false);
    if (format == Format::gif) put(6, 2, false), put(8, 2, false);
    if (format == Format::webp) put(24, 3, false), put(27, 3, false);
    if (format == Format::tiff) claim_tiff(m, file);
    if (format != Format::jpeg) return;
    const size_t frame = std::min(file.find("\xFF\xC0"), file.find("\xFF\xC2"));
    const size_t scan = file.rfind("\xFF\xDA"), end = file.rfind("\xFF\xD9");
    if (frame == std::string::npos || scan == std::string::npos || end <= scan) return;
    put(frame + 5, 2, true), put(frame + 7, 2, true);
    const std::string last = file.substr(scan, std::min<size_t>(end - scan, 200));
    if (!m.one_in(3))
      for (size_t n = m.below(60); n; --n) file.insert(scan, last);
  }

  // Changes a little-endian TIFF's width, height, or the size of a strip or tile.
  static void claim_tiff(Mutator& m, std::string& file) {
    constexpr std::array<char, 5> tags = {'\x00', '\x01', '\x16', '\x42', '\x43'};
    for (size_t n = 1 + m.below(3); n; --n) {
      const size_t at = file.rfind(std::string{tags[m.below(tags.size())], '\1'});
      if (at == std::string::npos || at + 12 > file.size()) continue;
      file.replace(at + 2, 2, std::string{'\4', '\0'});
      for (size_t i = 8; i < 12; ++i) file[at + i] = m.one_in(3) ? odd_byte(m) : '\0';
    }
  }

  static char odd_byte(Mutator& m) {
    constexpr std::array<uint8_t, 8> odd = {0, 1, 0x7F, 0x80, 0xFF, 0xFE, 0x10, 0x11};
    return char(m.one_in(2) ? m.below(256) : odd[m.below(odd.size())]);
  }

  // Damages the headers: they have few bytes but determine most of the decoding.
  static void damage_start(Mutator& m, std::string& file) {
    for (size_t n = 1 + m.below(3); n; --n)
      file[m.below(std::min<size_t>(file.size(), 80))] = odd_byte(m);
  }

  static void damage_segment(Mutator& m, std::string& file) {
    std::vector<size_t> markers;
    for (size_t i = 0; i + 1 < file.size(); ++i)
      if (file[i] == '\xFF' && file[i + 1] != '\0') markers.push_back(i);
    for (size_t n = 1 + m.below(3); n && !markers.empty(); --n) {
      const size_t at = markers[m.below(markers.size())] + 1 + m.below(m.one_in(2) ? 10 : 40);
      if (at < file.size()) file[at] = odd_byte(m);
    }
  }

  const std::vector<Seed> seeds_ = picture_seeds();
  uint64_t decoded_ = 0;
};

}  // namespace
}  // namespace bv::test::fuzz

int main(int argc, char** argv) {
  using namespace bv::test::fuzz;
  return run_mutants<PictureFuzzer>("fuzz_pictures", argc, argv, mutants, max_seconds);
}
