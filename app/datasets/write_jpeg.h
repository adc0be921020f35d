// Encodes photos.
#pragma once
#include <string>

#include "data/dataset.h"

namespace bv {

// Encodes a JPEG with libjpeg-turbo, chroma at half the resolution. Throws UserError in a build
// without that library.
std::string encode_jpeg(const Image& image, int quality);

}  // namespace bv
