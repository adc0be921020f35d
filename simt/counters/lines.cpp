#include "simt/counters/lines.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "simt/counters/lines_json.h"

namespace simt {
namespace {

constexpr unsigned warp_size = 32, sector = 32;

std::mutex mutex;
LaunchLines* running = nullptr;  // of the kernel that runs
std::map<std::string, LaunchLines>& of_kernels() {
  static auto& all = *new std::map<std::string, LaunchLines>;  // leaked: threads may run at exit
  return all;
}
std::map<std::string, std::vector<KernelArgument>>& passed() {
  static auto& all = *new std::map<std::string, std::vector<KernelArgument>>;
  return all;
}

// How many executions are kept per warp and instruction: fewer if a block has many warps.
unsigned most_kept(unsigned warps) { return warps <= 2 ? 8 : warps <= 8 ? 4 : 2; }

// The number of distinct bytes that the lanes request.
uint64_t distinct_bytes(const Lines::Request& r) {
  uint64_t begins[warp_size];
  unsigned n = 0;
  for (unsigned lane = 0; lane < warp_size; ++lane)
    if (r.mask >> lane & 1) begins[n++] = r.at[lane];
  if (!std::is_sorted(begins, begins + n)) std::sort(begins, begins + n);
  const unsigned width = unsigned(r.instruction >> 56);
  uint64_t bytes = 0, done = 0;
  for (unsigned i = 0; i < n; ++i) {
    const uint64_t end = begins[i] + width;
    if (end > done) bytes += end - std::max(begins[i], done);
    done = std::max(done, end);
  }
  return bytes;
}

}  // namespace

LineCounts& LineCounts::operator+=(const LineCounts& other) {
  executions += other.executions, lanes += other.lanes, partial += other.partial;
  needed += other.needed, used += other.used;
  global += other.global, shared += other.shared;
  return *this;
}

std::vector<uint64_t> kept_blocks(uint64_t blocks) {
  constexpr uint64_t few = 6;
  std::vector<uint64_t> kept;
  if (blocks <= few)
    for (uint64_t b = 0; b < blocks; ++b) kept.push_back(b);
  else
    kept = {0, 1, blocks / 2, blocks - 1};
  return kept;
}

void Lines::pass(const std::string& kernel, std::vector<KernelArgument> arguments) {
  if (!on) return;
  const std::lock_guard lock(mutex);
  passed().try_emplace(kernel, std::move(arguments));
}

void Lines::begin_launch(const std::string& kernel, const Extent& grid, const Extent& block,
                         size_t shared_bytes) {
  if (!on) return;
  const std::lock_guard lock(mutex);
  running =
      &of_kernels().try_emplace(kernel, LaunchLines{.number = of_kernels().size()}).first->second;
  if (running->counters.launches) return;
  running->grid = grid, running->block = block, running->shared_bytes = shared_bytes;
  running->arguments = passed()[kernel];
  running->kept = kept_blocks(uint64_t{grid[0]} * grid[1] * grid[2]);
}

void Lines::end_launch(const Counters& counters) {
  const std::lock_guard lock(mutex);
  if (running) running->counters += counters;
  running = nullptr;
}

void Lines::begin(unsigned threads, const Extent& block) {
  const std::lock_guard lock(mutex);
  const Extent grid = running ? running->grid : Extent{1, 1, 1};
  block_ = block[0] + uint64_t{grid[0]} * (block[1] + uint64_t{grid[1]} * block[2]);
  kept_ = running && !running->counters.launches && std::ranges::count(running->kept, block_);
  const unsigned warps = (threads + warp_size - 1) / warp_size;
  most_ = most_kept(warps);
  if (pieces_of_.size() < threads) pieces_of_.resize(threads), folded_.resize(threads);
  for (unsigned w = 0; w < warps; ++w) segments_[w] = {.block = block_, .warp = w};
  names_.clear();
}

void Lines::name_launch_memory(const SharedName& name) {
  if (!on || name.name.empty() || names_.empty()) return;
  const size_t bytes = names_[0].bytes;
  names_[0] = name, names_[0].bytes = bytes;
}

void Lines::request(unsigned warp, const Request& r) {
  Line& line = lines_[r.instruction];
  const uint64_t used = r.space < 0 ? distinct_bytes(r) : 0;
  line.counts += {.executions = 1,
                  .lanes = unsigned(std::popcount(r.mask)),
                  .partial = r.partial,
                  .global = r.global,
                  .needed = (used + sector - 1) / sector,
                  .used = used,
                  .shared = r.shared};
  LineSegment& segment = segments_[warp];
  segment.requests += r.global.requests, segment.sectors += r.global.sectors;
  segment.turns += r.shared.wavefronts;
  const unsigned number = line.seen[warp]++;
  if (!kept_ || number >= most_) return;
  const unsigned first = unsigned(std::countr_zero(r.mask));
  std::string name;
  if (r.space < 0 && name_device) name = name_device(r.at[first]);
  line.samples.push_back({block_, warp, number, r.mask, r.space, r.at, std::move(name)});
}

void Lines::event(unsigned warp, uint64_t instruction, unsigned lanes, unsigned of) {
  lines_[instruction].counts += {.executions = 1, .lanes = lanes, .partial = lanes < of};
  const AccessKind kind = Access::kind_of(instruction);
  segments_[warp].mma += kind == AccessKind::mma;
  segments_[warp].exchanges += kind == AccessKind::shuffle || kind == AccessKind::vote;
  if (kind == AccessKind::barrier || kind == AccessKind::numbered_barrier ||
      kind == AccessKind::copy_wait)
    end_segment(warp, instruction);
}

void Lines::end_segment(unsigned warp, uint64_t instruction) {
  LineSegment& segment = segments_[warp];
  segment.instruction = instruction;
  if (kept_) timeline_.push_back(segment);
  segment = {.block = block_, .warp = warp};
}

void Lines::fold(unsigned thread) {
  for (const Place place : pieces_of_[thread]) ++folded_[thread][place];
  pieces_of_[thread].clear();
}

// If all lanes took the same path, the warp executed each piece of that path once. Otherwise it
// counts as having executed a piece as often as the lane that entered it most often.
void Lines::count_pieces(unsigned begin, unsigned lanes) {
  auto* const all = &pieces_of_[begin];
  bool same = true;
  for (unsigned lane = 0; lane < lanes; ++lane)
    same &= all[lane] == all[0] && folded_[begin + lane].empty();
  if (same) {
    for (const Place place : all[0]) {
      PieceCounts& piece = pieces_[place];
      ++piece.warps, piece.lanes += lanes;
    }
  } else {
    std::map<Place, PieceCounts> sums;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      fold(begin + lane);
      for (const auto& [place, n] : std::exchange(folded_[begin + lane], {})) {
        PieceCounts& sum = sums[place];
        sum.warps = std::max(sum.warps, n), sum.lanes += n;
      }
    }
    for (const auto& [place, sum] : sums) {
      PieceCounts& piece = pieces_[place];
      piece.warps += sum.warps, piece.lanes += sum.lanes;
    }
  }
  for (unsigned lane = 0; lane < lanes; ++lane) all[lane].clear();
}

void Lines::end(unsigned warps) {
  for (unsigned warp = 0; warp < warps; ++warp) end_segment(warp, 0);
  const std::lock_guard lock(mutex);
  if (!running) return;
  LaunchLines& to = *running;
  std::vector<int> names;  // indices in to.names of the block's names_
  for (const SharedName& mine : names_) {
    const auto is_same = [&](const SharedName& n) {
      return n.name == mine.name && n.bytes == mine.bytes;
    };
    const auto found = std::ranges::find_if(to.names, is_same);
    names.push_back(int(found - to.names.begin()));
    if (found == to.names.end()) to.names.push_back(mine);
  }
  for (auto& [instruction, line] : lines_) {
    auto& sum = to.lines[instruction];
    sum.counts += line.counts;
    for (LineSample& s : line.samples) {
      if (s.space >= 0) s.space = names[size_t(s.space)];
      sum.samples.push_back(std::move(s));
    }
  }
  for (const auto& [place, piece] : pieces_) {
    PieceCounts& sum = to.pieces[place];
    sum.warps += piece.warps, sum.lanes += piece.lanes;
  }
  to.timeline.insert(to.timeline.end(), timeline_.begin(), timeline_.end());
  to.sites.insert(sites_.begin(), sites_.end());
  lines_.clear(), pieces_.clear(), timeline_.clear();
}

std::map<std::string, LaunchLines> Lines::take() {
  const std::lock_guard lock(mutex);
  return std::exchange(of_kernels(), {});
}

}  // namespace simt
