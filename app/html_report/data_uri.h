// Pictures embedded in the page.
#pragma once
#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace bv {

// "data:image/png;base64,..." of the picture, with at most `most` pixels per side; small pictures
// are enlarged.
std::string data_uri(const Image&, int most);

}  // namespace bv
