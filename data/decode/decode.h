// The parts of decode_image. Errors are BadImage.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "data/decode/decode_image.h"
#include "data/decode/file_view.h"

namespace bv {

// The format recognised from a file's first 12 bytes.
enum class Format { jpeg, png, bmp, gif, pnm, webp, tiff, unknown };
Format format_of(std::span<const uint8_t> start);
std::string_view name_of(Format);                                // "jpeg"
std::string_view extension_for(std::span<const uint8_t> start);  // "jpg"; "bin" if unknown
// "JPEG, PNG, BMP, GIF and PPM", and those whose libraries this build has.
std::string known_formats();
// A bad image whose reason says what to do, for which leaving the image out is the wrong advice.
struct MendableImage : BadImage {
  using BadImage::BadImage;
};
// The advice to add to the reason: none if that says what to do.
std::string advice_for(const BadImage&, const std::string& advice);

inline constexpr std::string_view git_lfs_pointer =
    "a Git LFS pointer: git lfs pull fetches the file that it stands for";
bool is_git_lfs_pointer(std::span<const uint8_t> start);
// A file that is not an image, by its first bytes: "an HTML page, ..."; empty if unknown.
std::string name_of_stranger(std::span<const uint8_t> start);
constexpr size_t stranger_bytes = 512;
// Refuses a file that is not an image, or whose format needs a library that this build lacks.
void require_decoder(Format, std::span<const uint8_t> start);

// Refuses a file whose header shows that it is not an image, is cut off before its size is known,
// or has a size that check_image_size refuses. Reads one or a few blocks. Returns the size as
// stored, not upright; zeros for a JPEG that has a scan or stray bytes before its frame header.
struct HeaderSize {
  int height = 0, width = 0;
};
HeaderSize check_header(FileView& file);

// Refuses a header that claims no pixels, more than any photo has, or more than a file of its size
// can hold, before anything of that size is allocated.
void check_image_size(int64_t width, int64_t height, size_t file_bytes);

// Returns a lock to hold during decoding that needs this much memory: large images are decoded one
// at a time, so that many workers don't each hold a huge one.
[[nodiscard]] std::unique_lock<std::mutex> wait_if_large(int64_t bytes);

// Converts 1 (grey), 2 (grey, alpha), 3 or 4 (RGB, alpha) channels to RGB over white.
Image to_rgb(const uint8_t* pixels, int width, int height, int channels);

// The Orientation tag (1-8) of an Exif block (a TIFF file without pixels); 1 if absent or damaged.
int exif_orientation(std::span<const uint8_t> tiff);
Image upright(Image stored, int orientation);

// How an orientation maps stored rows and columns to upright ones: `transpose` swaps them, then
// `flip_y` and `flip_x` count the upright ones from the other end.
struct Orientation {
  bool transpose, flip_y, flip_x;
};
Orientation orientation_of(int orientation);

// JPEG by libjpeg-turbo if the build has it, otherwise by stb_image. The markers are walked first,
// since neither decoder reports a truncated file reliably.
constexpr bool have_turbojpeg = BAREVISION_TURBOJPEG;

struct JpegInfo {
  int width = 0, height = 0, components = 0;
  int orientation = 1;
  int64_t samples = 0;                  // of all components, in whole blocks
  bool multiple_scans = false;          // every coefficient is in memory until the last scan
  bool baseline_or_progressive = true;  // Huffman-coded DCT; otherwise arithmetic, lossless, ...
  bool adobe = false;                   // has Adobe's APP14
  bool lacks_tables = false;            // a scan uses a Huffman or quantisation table never defined
};

// Walks the markers up to the end of the image. Refuses a missing frame, truncation, too large a
// size, too many scans, Huffman tables beyond their bounds (which stb_image doesn't check).
JpegInfo inspect_jpeg(std::span<const uint8_t> file);

// Decodes `part`, not yet upright, of the image at dct_scale/8 of its size. The values are the same
// as when decoding all of the image. Only if have_turbojpeg.
Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo&, int dct_scale,
                        const Region& part, std::string* warning);
// The length to which libjpeg scales `length`.
inline int scaled_length(int length, int dct_scale) { return (length * dct_scale + 7) / 8; }

// Decodes, not yet upright, at full size with stb_image; refuses arithmetic coding and missing
// tables.
Image decode_jpeg_stb(std::span<const uint8_t> file, const JpegInfo&);

// PNG, BMP and GIF (first image), upright.
Image decode_stb(std::span<const uint8_t> file, Format);

// Refuses a BMP of a kind that isn't read, or whose pixels would extend past the file's end:
// stb_image reads zeros there.
HeaderSize check_bmp(FileView& file);
Image decode_bmp(std::span<const uint8_t> file);

// Checks a PNG's chunks: sizes, names, checksums, end. Returns its Exif orientation.
int inspect_png(std::span<const uint8_t> file);

// Refuses a GIF that is cut off, or whose data encodes many more pixels than it has.
void inspect_gif(std::span<const uint8_t> file);

// PPM and PGM of 8 or 16 bits, PBM.
struct PnmInfo {
  int width = 0, height = 0, channels = 0;
  int largest = 0;                  // sample value (maxval)
  bool text = false, bits = false;  // samples as numbers; 0 or 1, where 1 is black
  size_t samples_at = 0;
};
PnmInfo inspect_pnm(FileView& file);
Image decode_pnm(std::span<const uint8_t> file);

// WebP by libwebp: the first frame of an animation. Only if have_webp.
constexpr bool have_webp = BAREVISION_WEBP;
struct WebpInfo {
  int width = 0, height = 0;  // of the canvas; the first frame may cover only a part
};
WebpInfo inspect_webp(FileView& file);
Image decode_webp(std::span<const uint8_t> file);

// The first image of a TIFF by libtiff. Only if have_tiff.
constexpr bool have_tiff = BAREVISION_TIFF;
HeaderSize inspect_tiff(FileView& file);
Image decode_tiff(std::span<const uint8_t> file);

}  // namespace bv
