// A look at every image's header before a run begins, so that no later epoch meets what it tells.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>

#include "data/decode/decode.h"
#include "data/file.h"
#include "data/sources.h"

namespace bv {
namespace {

// Why a file is no image; empty if its header is one's.
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
  using Reasons = std::map<int64_t, std::string>;  // of files by number, training first
  if (sets.kind != DataKind::photos) return {};
  const int64_t train = sets.train->files(), files = train + (sets.val ? sets.val->files() : 0);
  const auto path = [&](int64_t i) {
    return i < train ? sets.train->file(i) : sets.val->file(i - train);
  };
  std::atomic<int64_t> next = 0;
  const auto look = [&] {
    Reasons bad;
    for (int64_t i; (i = next++) < files;)
      if (std::string why = refusal(path(i)); !why.empty()) bad[i] = std::move(why);
    return bad;
  };
  // Mostly they wait for the disk.
  const int64_t threads = std::clamp<int64_t>(files / 64, 1, 16);
  std::vector<std::future<Reasons>> lookers;
  for (int64_t i = 0; i < threads; ++i) lookers.push_back(std::async(std::launch::async, look));
  Reasons bad;
  for (auto& looker : lookers) {
    while (looker.wait_for(std::chrono::seconds(1)) != std::future_status::ready)
      progress(std::min<int64_t>(next, files));
    bad.merge(looker.get());
  }
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
