#include "engine/weights/weights_cache.h"

#include <cstdlib>

#include "base/error.h"
#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/other_program.h"
#include "base/text.h"
#include "engine/files/checkpoint_read.h"
#include "engine/options/weights_name.h"
#include "engine/weights/hub_names.h"
#include "engine/weights/tensor_file.h"

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
  if (!names_public_weights(given)) {
    const std::string path = split_key(given).path;
    std::error_code error;
    const std::string link = link_without_target(path);
    if (!link.empty()) throw UserError(given + ": " + link + otherwise);
    if (!there_is(path) && !is_checkpoint_file(path))
      throw UserError(given + ": no such file" + advice_for_weights(given) + otherwise);
    const std::string inside = fs::is_directory(path, error) ? weights_file_in(path) : "";
    return inside.empty() ? path : inside;
  }
  const PublicWeights w = find_public_weights(given);
  const std::string path = weights_cache() / w.file;
  std::error_code error;
  if (fs::exists(path, error)) return path;
  throw UserError(w.name + " is not in the cache: run ./launcher weights fetch " + w.name +
                  ", or put " + w.url() + " at " + path + otherwise);
}

std::string checked_sha256(const PublicWeights& w, const std::string& path) {
  const std::string sha256 = sha256_of(path);
  if (!sha256.starts_with(w.sha256))
    throw UserError(path + ": its SHA-256 is " + sha256 + ", not " + w.sha256 +
                    (w.verified() ? "" : "...") + "; delete it and run ./launcher weights fetch " +
                    w.name);
  return sha256;
}

TensorFile read_weights_file(const std::string& given, const ListParameters& model,
                             const std::string& otherwise) {
  const std::string path = path_of_weights(given, otherwise);
  if (!names_public_weights(given))
    return read_tensor_file(path, {.key = split_key(given).key, .model = model});
  const PublicWeights w = find_public_weights(given);
  if (!w.sha256.empty()) checked_sha256(w, path);
  TensorFile file = read_tensor_file(path, {.key = "", .model = model});
  file.metadata.merge(weights_metadata(w.info));
  return file;
}

}  // namespace bv
