#include "simt/hopper/wgmma_fragments.h"

#include <algorithm>
#include <cstring>

namespace simt {
namespace {

// A signalling NaN: arithmetic makes it a quiet one, so that a use in flight shows in its bits.
constexpr uint32_t poison = 0xFFA5'A5A5;
constexpr unsigned lanes = 32;

// Register 4 j + i of a lane holds row lane/4 + i/2 * 8, column 8 j + lane%4 * 2 + i%2.
template <class Move>
void each_pair(unsigned count, Move move) {
  for (unsigned lane = 0; lane < lanes; ++lane)
    for (unsigned r = 0; r < count; r += 2)
      move(lane * count + r, (lane / 4 + r / 2 % 2 * 8) * 2 * count + r / 4 * 8 + lane % 4 * 2);
}

}  // namespace

Fragment::Fragment(const WarpRegisters& registers, unsigned index)
    : count_(registers.of[0][index].count), values_(lanes * count_) {
  for (const Registers* const of : registers.of)
    lanes_.push_back(static_cast<unsigned char*>(of[index].at));
}

bool Fragment::overlaps(const void* begin, size_t bytes) const {
  const auto* const p = static_cast<const unsigned char*>(begin);
  return p < lanes_[0] + 4 * size_t{count_} && lanes_[0] < p + bytes;
}

bool Fragment::holds(const void* begin, unsigned count) const {
  const auto* const p = static_cast<const unsigned char*>(begin);
  return p >= lanes_[0] && p + 4 * size_t{count} <= lanes_[0] + 4 * size_t{count_};
}

void Fragment::remember() {
  for (unsigned i = 0; i < lanes; ++i)
    std::memcpy(&values_[i * count_], lanes_[i], 4 * size_t{count_});
}

bool Fragment::is_unchanged(const void* first_lanes, unsigned count) const {
  const auto skipped = size_t(static_cast<const unsigned char*>(first_lanes) - lanes_[0]);
  for (unsigned i = 0; i < lanes; ++i)
    if (std::memcmp(&values_[i * count_ + skipped / 4], lanes_[i] + skipped, 4 * size_t{count}))
      return false;
  return true;
}

void Fragment::begin_flight(bool early) {
  flies_ = true;
  early_ = early;
  sums_.resize(values_.size());
  each_pair(count_, [&](size_t from, size_t to) { std::memcpy(&sums_[to], &values_[from], 8); });
  if (early) return;
  std::fill(values_.begin(), values_.end(), poison);
  for (unsigned i = 0; i < lanes; ++i)
    std::memcpy(lanes_[i], &values_[i * count_], 4 * size_t{count_});
}

void Fragment::deliver() {
  each_pair(count_, [&](size_t to, size_t from) { std::memcpy(&values_[to], &sums_[from], 8); });
  for (unsigned i = 0; i < lanes; ++i)
    std::memcpy(lanes_[i], &values_[i * count_], 4 * size_t{count_});
}

Fragment* Fragments::find(const void* first_lanes, unsigned count) {
  for (Fragment& f : all_)
    if (f.is(first_lanes, count)) return &f;
  return nullptr;
}

Fragment* Fragments::holding(const void* first_lanes, unsigned count) {
  for (Fragment& f : all_)
    if (f.holds(first_lanes, count)) return &f;
  return nullptr;
}

Fragment* Fragments::flying(const void* begin, size_t bytes) {
  for (Fragment& f : all_)
    if (f.flies() && f.overlaps(begin, bytes)) return &f;
  return nullptr;
}

Fragment& Fragments::add(const WarpRegisters& registers, unsigned index) {
  const Registers r = registers.of[0][index];
  all_.remove_if([&](const Fragment& f) { return f.overlaps(r.at, 4 * size_t{r.count}); });
  return all_.emplace_back(registers, index);
}

}  // namespace simt
