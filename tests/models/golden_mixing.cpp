#include "tests/models/golden_mixing.h"

#include <nlohmann/json.hpp>

#include "tests/files.h"

namespace bv::test::golden {

std::optional<MixingReference> mixing() {
  const std::string text = contents("tests/golden/training/mixing.json");
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text);
  MixingReference r{.size = json["size"], .classes = json["classes"], .labels = json["labels"]};
  const int B = static_cast<int>(r.labels.size());
  for (int b = 0; b < B; ++b) {
    for (int y = 0; y < r.size; ++y)
      for (int x = 0; x < r.size; ++x)
        for (int c = 0; c < 3; ++c)
          r.images.push_back(
              static_cast<uint8_t>(b * 89 + c * 53 + y * 31 + x * 17 + x * y * (b + 3)));
    for (int k = 0; k < r.classes; ++k)
      r.logits.push_back(static_cast<float>((b * 37 + k * 29) % 64) / 8 - 4);
  }
  for (const auto& c : json["cases"]) {
    MixedBatch batch{.options = c["options"], .smoothing = c["smoothing"], .loss = c["loss"]};
    for (const auto& m : c["mixes"]) batch.mixes.push_back({m[0], m[1], m[2], m[3], m[4]});
    for (const std::string levels : c["levels"])
      for (size_t i = 0; i < levels.size(); i += 2)
        batch.images.push_back(static_cast<uint8_t>(std::stoi(levels.substr(i, 2), nullptr, 16)));
    r.batches.push_back(std::move(batch));
  }
  return r;
}

}  // namespace bv::test::golden
