// Weights that others have published and that fit models here: models/weights/*.json.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/weights.h"

namespace bv {

struct PublicWeights {
  std::string name;               // "timm/resnet50.a1_in1k"
  std::vector<std::string> also;  // other names of the same file
  std::string host, path;         // the URL's two halves; a mirror replaces the host
  std::string file;               // in the cache: "timm/resnet50.a1_in1k.safetensors"
  std::string licence, page;      // page: URL of the description
  std::string sha256;             // hexadecimal: all 64 digits, or the first few; empty: unknown
  int mib = 0;                    // approximate size of the download
  int outputs = 0;                // classes; 0: no head
  WeightsInfo info;               // for metadata that the file lacks

  std::string url() const { return host + path; }
  // Somebody has fetched the file and recorded its checksum.
  bool verified() const { return sha256.size() == 64; }
};

// All public weights, in the order of their files. Throws UserError.
std::vector<PublicWeights> public_weights();
std::vector<PublicWeights> parse_public_weights(std::string_view text, const std::string& path);

// Throws UserError naming similar names if there are no such weights.
PublicWeights find_public_weights(const std::string& name);

}  // namespace bv
