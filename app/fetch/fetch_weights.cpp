#include "app/fetch/fetch_weights.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/fetch/download.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "engine/console/progress_line.h"
#include "engine/files/weights.h"
#include "engine/options/model_config.h"
#include "engine/weights/model_tensors.h"
#include "engine/weights/tensor_file.h"
#include "engine/weights/weights_cache.h"
#include "models/family.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

std::string user_name(uid_t id) {
  const passwd* const user = getpwuid(id);
  return user ? user->pw_name : "user " + std::to_string(id);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw WriteError("create", folder, error.value());
}

std::string url_of(const PublicWeights& w, std::string mirror) {
  while (mirror.ends_with('/')) mirror.pop_back();
  return mirror.empty() ? w.url() : mirror + w.path;
}

// Reads the file and compares its tensors with those of the model that it is for. Returns their
// number.
size_t check_tensors(const PublicWeights& w, const std::string& path) {
  const ModelConfig model = load_model_config(*w.info.model);
  TensorFile file = read_tensor_file(path);
  const size_t tensors = file.tensors.size();
  std::vector<std::string> heads;  // a file without a head needs none
  if (w.outputs == 0)
    for (const std::string& head : model.family->heads(model.sizes))
      heads.insert(heads.end(), {head + ".weight", head + ".bias"});
  const ModelSizes sizes = {.image_size = w.info.image_size.value_or(0),
                            .patch_size = w.info.patch_size.value_or(0),
                            .classes = w.outputs ? w.outputs : 2,
                            .representation_size = representation_size(file)};
  try {
    fit_weights(std::move(file), path, parameter_shapes(model, sizes), heads);
  } catch (const UserError& e) {
    throw UserError("not " + w.name + ", which is a " + model.name + ": " + e.what());
  }
  return tensors;
}

// Checks a file that was there before this command.
void check_old(const PublicWeights& w, FetchedWeights& there) {
  there.sha256 = checked_sha256(w, there.path);
  try {
    there.tensors = check_tensors(w, there.path);
  } catch (const UserError& e) {
    throw UserError(std::string(e.what()) + "; delete it and run ./launcher weights fetch " +
                    w.name);
  }
}

}  // namespace

void refuse_foreign_cache(const fs::path& cache) {
  std::error_code error;
  fs::path there = fs::absolute(cache, error);
  while (there.has_relative_path() && !fs::exists(there, error)) there = there.parent_path();
  struct stat status {};
  if (stat(there.c_str(), &status) != 0 || status.st_uid == geteuid()) return;
  throw UserError(there.string() + " belongs to " + user_name(status.st_uid) + ", you are " +
                  user_name(geteuid()) +
                  ": --cache DIR names another folder, BAREVISION_CACHE for "
                  "all commands");
}

std::optional<FetchedWeights> fetch_weights(const PublicWeights& w, const fs::path& cache,
                                            const std::string& mirror) {
  const std::string path = cache / w.file, url = url_of(w, mirror);
  FetchedWeights result{.path = path, .sha256 = {}};
  std::error_code error;
  if (fs::exists(path, error)) {
    check_old(w, result);
    return result;
  }
  const std::string part = path + ".part";
  const Download download_of_it = {
      .url = url, .sha256 = w.sha256, .path = part, .into = path, .check = [&] {
        result.tensors = check_tensors(w, part);
      }};
  ProgressLine progress;
  const auto show = [&](uint64_t bytes) {
    progress.show(url + ": " + std::to_string(bytes >> 20) + " of about " + std::to_string(w.mib) +
                  " MiB");
  };
  try {
    make_folder(fs::path(path).parent_path());
    const auto sha256 = download(download_of_it, show);
    if (!sha256) return {};
    result.sha256 = *sha256;
  } catch (const TransferError& e) {
    throw RunError(std::string(e.what()) + "; by hand: put " + w.url() + " at " + path);
  } catch (const WriteError& e) {
    const std::string line = std::string(e.what()) + "; --cache DIR names another folder";
    if (e.disk_full()) throw RunError(line);
    throw UserError(line);  // a folder that is read-only, or no folder
  } catch (const RunError& e) {
    throw RunError(std::string(e.what()) + "; --cache DIR names another folder");
  }
  result.downloaded = result.tensors > 0;
  if (!result.downloaded) result.tensors = check_tensors(w, path);
  return result;
}

}  // namespace bv
