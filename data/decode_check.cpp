// Decodes images before a run that skips bad ones, so that what it counts leaves out all of them.
#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "base/threads.h"
#include "data/dataset.h"

namespace bv {
namespace {

constexpr uint64_t few_bytes = uint64_t{64} << 20;

bool are_few_bytes(const DataSets& sets) {
  uint64_t bytes = 0;
  std::set<std::string> seen;  // both parts may be of the same records
  for (const Dataset* part : {sets.train.get(), sets.val.get()})
    for (int64_t i = 0; part && i < part->files() && bytes <= few_bytes; ++i) {
      std::error_code error;
      if (!seen.insert(part->file(i)).second) continue;
      const uint64_t size = std::filesystem::file_size(part->file(i), error);
      if (!error) bytes += size;
    }
  return bytes <= few_bytes;
}

// The training images, then those for validation.
struct Numbered {
  const DataSets& sets;
  int64_t train() const { return sets.train->size(); }
  int64_t size() const { return train() + (sets.val ? sets.val->size() : 0); }
  const Dataset& part(int64_t& i) const {
    if (i < train()) return *sets.train;
    i -= train();
    return *sets.val;
  }
  std::string name(int64_t i) const {
    const Dataset& data = part(i);
    return data.name(i);
  }
  std::string damage(int64_t i) const try {
    const Dataset& data = part(i);
    data.image(i, 0);
    return "";
  } catch (const BadImage& e) {
    return e.what();
  }
};

}  // namespace

void add_damaged_images(const DataSets& sets, std::span<const std::string> suspects, int threads,
                        BadImages& bad) {
  if (sets.kind != DataKind::photos) return;
  const Numbered images{sets};
  std::set<int64_t> known(bad.train.begin(), bad.train.end());
  for (const int64_t i : bad.val) known.insert(images.train() + i);
  const std::set<std::string> wanted(suspects.begin(), suspects.end());
  const bool all = are_few_bytes(sets);
  if (!all && wanted.empty()) return;
  std::vector<int64_t> looked_at;
  for (int64_t i = 0; i < images.size(); ++i)
    if (!known.contains(i) && (all || wanted.contains(absolute_path(images.name(i)))))
      looked_at.push_back(i);
  std::mutex mutex;
  std::map<int64_t, std::string> damaged;
  const auto look = [&](int64_t k) {
    const std::string why = images.damage(looked_at[k]);
    if (why.empty()) return;
    const std::lock_guard lock(mutex);
    damaged[looked_at[k]] = why;
  };
  in_threads(static_cast<int64_t>(looked_at.size()), threads, look, std::chrono::seconds(1),
             [](int64_t) {});
  for (const auto& [i, why] : damaged) {
    if (bad.first.empty()) bad.first = images.name(i) + ": " + why;
    if (i < images.train())
      bad.train.push_back(i);
    else
      bad.val.push_back(i - images.train());
  }
  std::ranges::sort(bad.train);
  std::ranges::sort(bad.val);
}

}  // namespace bv
