// Writing photos.
#pragma once
#include <string>

#include "data/dataset.h"

namespace bv {

// A JPEG file by libjpeg-turbo, colours at half the resolution. Throws UserError in a build
// without it.
std::string encode_jpeg(const Image& image, int quality);

}  // namespace bv
