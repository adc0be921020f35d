// Downloads public weights into a cache folder.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "engine/weights/public_weights.h"

namespace bv {

struct FetchedWeights {
  std::string path, sha256;
  size_t tensors = 0;
  bool downloaded = false;  // by this process
};

// Returns nothing after a stop signal. `mirror`: a URL in place of the host; empty: none. Throws
// RunError with the URL and the path at which to put the file by hand.
std::optional<FetchedWeights> fetch_weights(const PublicWeights&,
                                            const std::filesystem::path& cache,
                                            const std::string& mirror);

// Refuses a cache that belongs to another user: files made there would be in that user's way.
void refuse_foreign_cache(const std::filesystem::path& cache);

}  // namespace bv
