#include "data/decode/image_extensions.h"

#include <algorithm>
#include <cctype>

#include "data/decode/decode.h"

namespace bv {
namespace {

enum class Reading { always, with_webp, with_tiff, never };
struct Extension {
  std::string_view name;
  Reading reading = Reading::never;
};
constexpr Extension extensions[] = {
    {".jpg", Reading::always},
    {".jpeg", Reading::always},
    {".jpe", Reading::always},
    {".jfif", Reading::always},
    {".png", Reading::always},
    {".bmp", Reading::always},
    {".gif", Reading::always},
    {".ppm", Reading::always},
    {".pgm", Reading::always},
    {".pbm", Reading::always},
    {".pnm", Reading::always},
    {".webp", Reading::with_webp},
    {".tif", Reading::with_tiff},
    {".tiff", Reading::with_tiff},
    // phones and the web
    {".heic"},
    {".heif"},
    {".hif"},
    {".avif"},
    {".jxl"},
    {".jp2"},
    {".j2k"},
    {".jpx"},
    {".jxr"},
    {".svg"},
    {".ico"},
    // cameras
    {".raw"},
    {".dng"},
    {".arw"},
    {".cr2"},
    {".cr3"},
    {".nef"},
    {".orf"},
    {".pef"},
    {".raf"},
    {".rw2"},
    {".srw"},
    // programs and instruments
    {".tga"},
    {".psd"},
    {".xcf"},
    {".pcx"},
    {".dds"},
    {".qoi"},
    {".pam"},
    {".pfm"},
    {".hdr"},
    {".exr"},
    {".dcm"},
    {".fits"},
};

// Null: not of an image.
const Extension* find(std::string_view extension) {
  const auto at = std::ranges::find(extensions, extension, &Extension::name);
  return at == std::end(extensions) ? nullptr : at;
}

bool reads(const Extension& e) {
  return e.reading == Reading::always || (e.reading == Reading::with_webp && have_webp) ||
         (e.reading == Reading::with_tiff && have_tiff);
}

}  // namespace

std::string extension_of(const std::filesystem::path& path) {
  std::string text = path.extension().string();
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_read(std::string_view extension) {
  const Extension* known = find(extension);
  return known && reads(*known);
}

bool is_other_image(std::string_view extension) {
  const Extension* known = find(extension);
  return known && !reads(*known);
}

bool has_library(std::string_view extension) {
  const Extension* known = find(extension);
  return known && (known->reading == Reading::with_webp || known->reading == Reading::with_tiff);
}

}  // namespace bv
