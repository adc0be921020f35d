// Decodes image files.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/image/image.h"

namespace bv {

// Decodes an image file, upright, as 8-bit RGB, alpha over white. The format is recognised by
// content, not by name. Throws BadImage; `warning`, unless null, receives the first problem that
// the decoder ignored.
Image decode_image(std::span<const uint8_t> file, int at_least, std::string* warning = nullptr);
// Decodes the part that `choose` requests; a JPEG at a reduced scale if the request allows it.
// `of`: the rectangle of the photo that is the image; empty: all of it.
View decode_view(std::span<const uint8_t> file, const RequestFn& choose, const Region& of = {},
                 std::string* warning = nullptr);

}  // namespace bv
