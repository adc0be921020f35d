// Reads every image's header before a run, so that a bad one can't end it in a later epoch.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/files/file.h"
#include "base/threads.h"
#include "data/decode/decode.h"
#include "data/sources.h"

namespace bv {
namespace {

// The reason why a file is not an image; empty if the header is that of an image.
std::string refusal(const std::string& path) try {
  const RegularFile file(path, max_image_bytes);
  FileView view(file);
  check_header(view);
  return "";
} catch (const FileError& e) {
  return e.what();
} catch (const BadImage& e) {
  return e.what();
}

}  // namespace

BadImages find_bad_images(const DataSets& sets, const std::function<void(int64_t)>& progress) {
  if (sets.kind != DataKind::photos || sets.records) return {};
  const int64_t train = sets.train->files(), files = train + (sets.val ? sets.val->files() : 0);
  const auto path = [&](int64_t i) {
    return i < train ? sets.train->file(i) : sets.val->file(i - train);
  };
  std::mutex mutex;
  std::map<int64_t, std::string> bad;  // reasons, by the file's number, training first
  const auto look = [&](int64_t i) {
    std::string why = refusal(path(i));
    if (why.empty()) return;
    const std::lock_guard lock(mutex);
    bad[i] = std::move(why);
  };
  // The threads mostly wait for the disk.
  const auto threads = static_cast<int>(std::clamp<int64_t>(files / 64, 1, 16));
  in_threads(files, threads, look, std::chrono::seconds(1), progress);
  BadImages found;
  for (const auto& [i, why] : bad) {
    if (found.first.empty()) found.first = path(i) + ": " + why;
    if (i < train)
      found.train.push_back(i);
    else
      found.val.push_back(i - train);
  }
  return found;
}

}  // namespace bv
