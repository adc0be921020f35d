// Writes the pictures in records, or in CIFAR's files, as image files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bv {

struct Unpacked {
  int64_t pictures = 0, skipped = 0;
  std::string first_skipped = {};
  std::vector<std::string> warnings = {};  // of files of records that aren't read
};
// Writes CLASS/NAME into `folder`, which must exist; photos with objects keep their own names. Two
// parts are written to train/ and val/. Pictures in records keep their bytes, CIFAR's become PNG.
// Returns nothing if `go_on`, called with the number of finished pictures, returns false. Throws
// DataError, RunError.
std::optional<Unpacked> unpack_records(const std::string& path, const std::filesystem::path& folder,
                                       bool skip_bad,
                                       const std::function<bool(int64_t done, int64_t of)>& go_on);

}  // namespace bv
