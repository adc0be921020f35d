#include "simt/host/earlier_writes.h"

#include <algorithm>
#include <cstring>

#include "simt/host/memory.h"

namespace simt::host {
namespace {

constexpr size_t piece_bytes = 64, most_bytes = 64 << 20;

}  // namespace

bool EarlierWrites::are_kept() {
  size_t all = 0;
  device_memory().each([&](uintptr_t, size_t bytes) { all += bytes; });
  return all <= most_bytes;
}

EarlierWrites::EarlierWrites() {
  device_memory().each([this](uintptr_t begin, size_t bytes) {
    auto* const at = reinterpret_cast<unsigned char*>(begin);
    copies_.push_back({at, std::vector<unsigned char>(at, at + bytes)});
  });
}

void EarlierWrites::has_ended() {
  for (const Copy& c : copies_)
    for (size_t i = 0; i < c.bytes.size(); i += piece_bytes) {
      const size_t n = std::min(piece_bytes, c.bytes.size() - i);
      if (!std::memcmp(c.at + i, &c.bytes[i], n)) continue;
      if (pieces_.empty() || pieces_.back().at + pieces_.back().other.size() != c.at + i)
        pieces_.push_back({c.at + i, {}});
      auto& other = pieces_.back().other;
      other.insert(other.end(), &c.bytes[i], &c.bytes[i] + n);
    }
  copies_ = {};
}

void EarlierWrites::show(bool visible) {
  if (visible == visible_) return;
  visible_ = visible;
  for (Piece& p : pieces_) std::swap_ranges(p.other.begin(), p.other.end(), p.at);
}

}  // namespace simt::host
