#include "engine/weights/weights_cache.h"

#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "engine/files/torch/torch_file.h"
#include "engine/options/weights_name.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

fs::path folder_in(const char* variable) {
  const char* const value = std::getenv(variable);
  return value ? fs::path(value) : fs::path();
}

}  // namespace

fs::path weights_cache() {
  if (const fs::path own = folder_in("BAREVISION_CACHE"); !own.empty()) return own;
  const fs::path below = "barevision/weights";
  // The XDG specification ignores relative paths.
  if (const fs::path all = folder_in("XDG_CACHE_HOME"); all.is_absolute()) return all / below;
  if (const fs::path home = folder_in("HOME"); !home.empty()) return home / ".cache" / below;
  throw UserError("no folder for public weights: neither BAREVISION_CACHE nor HOME is set");
}

std::string path_of_weights(const std::string& given, const std::string& otherwise) {
  if (!names_public_weights(given)) return given;
  const PublicWeights w = find_public_weights(given);
  const std::string path = weights_cache() / w.file;
  std::error_code error;
  if (fs::exists(path, error)) return path;
  throw UserError(w.name + " is not in the cache: run ./launcher weights fetch " + w.name +
                  ", or put " + w.url() + " at " + path + otherwise);
}

TensorFile read_weights_file(const std::string& given, const std::string& otherwise) {
  const std::string path = path_of_weights(given, otherwise);
  TensorFile file = read_tensor_file(path);
  if (path != given) file.metadata.merge(weights_metadata(find_public_weights(given).info));
  return file;
}

}  // namespace bv
