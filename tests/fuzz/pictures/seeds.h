// Whole small pictures of every format that decode_image reads, to be damaged.
#pragma once
#include <string>
#include <vector>

#include "data/decode/decode.h"

namespace bv::test::fuzz {

struct Seed {
  Format format;
  std::string bytes;
};

// Pictures made here, and the small files of BAREVISION_DATA's image_edge_cases if they exist.
std::vector<Seed> picture_seeds();

std::vector<std::string> jpeg_seeds();

std::string from_hex(const std::string& digits);

// Writes the checksum of every complete chunk.
void sign_png(std::string& file);

}  // namespace bv::test::fuzz
