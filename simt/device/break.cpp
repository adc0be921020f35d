#include "simt/device/break.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Neither inlined nor optimised away, so that a breakpoint on it works.
extern "C" [[gnu::noinline]] void simt_break() { asm volatile(""); }

namespace simt {
namespace {

struct Place {
  std::string kernel;
  uint3 block, thread;
};

std::optional<Place> wanted() {
  const char* set = std::getenv("SIMT_BREAK");
  if (!set || !*set) return {};
  // Names of kernels contain commas, too: the numbers are parsed from the end.
  Place place{.kernel = set, .block = {}, .thread = {}};
  unsigned* const numbers[] = {&place.thread.z, &place.thread.y, &place.thread.x,
                               &place.block.z,  &place.block.y,  &place.block.x};
  for (unsigned* number : numbers) {
    const size_t comma = place.kernel.rfind(',');
    char end = 0;
    if (comma == std::string::npos ||
        std::sscanf(place.kernel.c_str() + comma, ",%u%c", number, &end) != 1)
      throw std::runtime_error("SIMT_BREAK=" + std::string(set) +
                               ": should be KERNEL,bx,by,bz,tx,ty,tz");
    place.kernel.resize(comma);
  }
  return place;
}

bool is_in(const Place& place, const Launch& launch) {
  return launch.name.find(place.kernel) != std::string::npos;
}

// Edit distance: the least number of changed, added or removed letters.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1],
                               std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j])}));
  }
  return row.back();
}

std::string extent(dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

// Launches made while SIMT_BREAK was set.
class Launches {
 public:
  // Never destroyed: it is read at exit.
  static Launches& instance() {
    static Launches& all = *new Launches;
    return all;
  }

  void add(const Launch& launch) {
    const std::lock_guard lock(mutex_);
    if (seen_.empty()) std::atexit([] { instance().report(); });
    seen_.emplace(
        launch.name + ", grid " + extent(launch.grid) + " of blocks " + extent(launch.block),
        launch.name.substr(0, launch.name.find('<')));
  }
  void stopped() { stopped_ = true; }

 private:
  void report() {
    const std::optional<Place> place = stopped_ ? std::nullopt : wanted();
    if (!place) return;
    const std::lock_guard lock(mutex_);
    using Seen = std::pair<size_t, std::string>;
    std::vector<Seen> nearest;
    for (const auto& [text, name] : seen_)
      nearest.emplace_back(
          text.find(place->kernel) != text.npos ? 0 : 1 + distance(place->kernel, name), text);
    std::sort(nearest.begin(), nearest.end());
    const bool known = nearest.front().first == 0;
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(nearest.size(), 3); ++i)
      if (!known || nearest[i].first == 0) list += (i ? "; " : "") + nearest[i].second;
    std::fprintf(stderr, "SIMT_BREAK=%s stopped nowhere: no such %s; %s: %s\n",
                 std::getenv("SIMT_BREAK"), known ? "block or thread" : "kernel",
                 known ? "launched" : "the nearest of those launched", list.c_str());
  }

  std::mutex mutex_;
  std::map<std::string, std::string> seen_;  // a launch as text, the kernel's plain name
  std::atomic<bool> stopped_ = false;
};

}  // namespace

bool breaks_in(const Launch& launch) {
  const auto place = wanted();
  if (place) Launches::instance().add(launch);
  return place && is_in(*place, launch);
}

unsigned thread_to_break_in(const Launch& launch, uint3 block) {
  const auto place = wanted();
  if (!place || !is_in(*place, launch)) return ~0u;
  const auto [b, t] = std::pair(place->block, place->thread);
  if (b.x != block.x || b.y != block.y || b.z != block.z) return ~0u;
  const dim3 shape = launch.block;
  if (t.x >= shape.x || t.y >= shape.y || t.z >= shape.z) return ~0u;
  Launches::instance().stopped();
  return t.x + shape.x * (t.y + shape.y * t.z);
}

}  // namespace simt
