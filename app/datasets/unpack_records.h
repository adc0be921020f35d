// The pictures in records, or in CIFAR-10's files, become files again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace bv {

struct Unpacked {
  int64_t pictures = 0, skipped = 0;
  std::string first_skipped = {};
};
// Into `folder`, which exists: CLASS/NAME, or the photos of objects under their names; of two
// parts in train/ and val/. Records give the files' own bytes, CIFAR-10 PNG. Nothing where
// `go_on`, told how many are done, says so. Throws DataError, RunError.
std::optional<Unpacked> unpack_records(const std::string& path, const std::filesystem::path& folder,
                                       bool skip_bad,
                                       const std::function<bool(int64_t done, int64_t of)>& go_on);

}  // namespace bv
