// File extensions of image formats, and which of them this build reads. All are in lower case, with
// the dot: ".jpg".
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace bv {

std::string extension_of(const std::filesystem::path&);
bool is_read(std::string_view extension);
// Whether the extension is that of an image format that this build doesn't read.
bool is_other_image(std::string_view extension);
// Whether a build with the format's library reads files with the extension (WebP, TIFF).
bool has_library(std::string_view extension);

}  // namespace bv
