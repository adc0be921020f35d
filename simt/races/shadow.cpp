#include "simt/races/shadow.h"

namespace simt {

Cell* Shadow::at(uintptr_t address) {
  const uintptr_t number = address / page;
  Recent& recent = recent_[number % recent_.size()];
  if (recent.number != number) {
    std::unique_ptr<Page>& found = pages_[number];
    if (!found && !spare_.empty()) {
      found = std::move(spare_.back());
      spare_.pop_back();
    } else if (!found && pages_.size() > max_pages) {
      return nullptr;
    } else if (!found) {
      found = std::make_unique<Page>();
    }
    recent = {number, found.get()};
  }
  return &(*recent.page)[address % page / word];
}

void Shadow::clear() {
  for (auto& [number, one] : pages_)
    if (one) spare_.push_back(std::move(one));
  pages_.clear();
  recent_.fill({});
  for (Pool& pool : pools) pool.clear();
}

uint32_t Shadow::Pool::add(const Reads& reads, uint32_t next) {
  if (!free) {
    more.push_back({reads, next});
    return uint32_t(more.size() - 1);
  }
  const uint32_t at = free;
  free = more[at].next;
  more[at] = {reads, next};
  return at;
}

void Shadow::Pool::drop(uint32_t first) {
  if (!first) return;
  uint32_t last = first;
  while (more[last].next) last = more[last].next;
  more[last].next = free;
  free = first;
}

void Shadow::Pool::clear() {
  more.resize(1);
  free = 0;
  bytes.clear();
}

}  // namespace simt
