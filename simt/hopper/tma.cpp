#include "simt/hopper/tma.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "simt/device/control.h"
#include "simt/hopper/hopper.h"

namespace simt {

void Tma::begin() {
  loads_.clear();
  stores_.clear();
  groups_.assign(hopper_.block.threads().size(), 0);
}

Tma::When Tma::draw() {
  if (const auto early = lands_early()) return *early ? When::early : When::late;
  constexpr When each[]{When::early, When::late, When::some_time};
  return each[hopper_.block.random() % 3];
}

// ---- Loads -------------------------------------------------------------------------------------

void Tma::load(Bytes to, std::function<void(unsigned char*)> fill, uint64_t* mbarrier,
               const char* who, Site site) {
  ProxyState& proxy = hopper_.proxy;
  proxy.note(to, hopper_.block.running().id);
  hopper_.mbarriers.check_use(mbarrier, who, site);
  const unsigned number = proxy.comes(to, who, site);
  loads_.push_back({to, std::move(fill), mbarrier, number, who, site});
  const When when = draw();
  if (when == When::early) return land(loads_.size() - 1);
  // Until the load lands, a thread that reads without waiting gets NaN.
  std::memset(const_cast<void*>(to.begin), 0xFF, to.count);
  proxy.absorb(to);
}

void Tma::land(size_t index) {
  const Load load = std::move(loads_[index]);
  loads_.erase(loads_.begin() + static_cast<ptrdiff_t>(index));
  hopper_.proxy.note(load.to, hopper_.block.running().id);
  load.fill(static_cast<unsigned char*>(const_cast<void*>(load.to.begin)));
  hopper_.proxy.absorb(load.to);
  hopper_.proxy.has_come(load.number);
  hopper_.mbarriers.complete_tx(load.mbarrier, load.to.count, load.number);
}

bool Tma::completes_on(const uint64_t* mbarrier) const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [=](const Load& load) { return load.mbarrier == mbarrier; });
}

bool Tma::land_one() {
  if (loads_.empty()) return false;
  land(lands_early() ? 0 : hopper_.block.random() % loads_.size());
  return true;
}

void Tma::drift() {
  if (loads_.empty() || lands_early()) return;
  if (hopper_.block.random() % 16 == 0) land(hopper_.block.random() % loads_.size());
}

// ---- Stores ------------------------------------------------------------------------------------

void Tma::store(Bytes from, std::function<void(const unsigned char*)> drain, const char* who,
                Site site) {
  async_read(from, who, site);
  const unsigned me = hopper_.block.running().id;
  stores_.push_back({.from = from,
                     .drain = std::move(drain),
                     .thread = me,
                     .group = groups_[me],
                     .hold = hold_read(from, who, site),
                     .who = who,
                     .site = site});
  const When when = draw();
  if (when != When::late) read(stores_.back());
  if (when == When::early) write(stores_.back());
}

void Tma::commit() { ++groups_[hopper_.block.running().id]; }

void Tma::read(Store& s) {
  if (std::exchange(s.read, true)) return;
  const auto* const from = static_cast<const unsigned char*>(s.from.begin);
  s.bytes.assign(from, from + s.from.count);
}

void Tma::write(Store& s) {
  if (std::exchange(s.written, true)) return;
  s.drain(s.bytes.data());
  s.bytes = {};
}

void Tma::wait(unsigned pending, bool only_reads) {
  const unsigned me = hopper_.block.running().id;
  for (Store& s : stores_) {
    if (s.thread != me || s.group + pending >= groups_[me]) continue;
    read(s);
    release_read(std::exchange(s.hold, 0));
    if (!only_reads) write(s);
  }
  std::erase_if(stores_, [](const Store& s) { return s.written && !s.hold; });
}

// ---- The end -----------------------------------------------------------------------------------

void Tma::returns(unsigned thread) {
  const auto& threads = hopper_.block.threads();
  for (const Store& s : stores_)
    if (s.thread == thread && s.hold)
      hopper_.block.fail_with(
          name(threads[thread]) + " returns, but its " + s.who + at(s.site) +
          " may still read shared memory: cp.async.bulk.wait_group.read is missing");
  if (!std::all_of(threads.begin(), threads.end(), [](const Thread& t) { return t.returned; }))
    return;
  if (const std::string error = hopper_.proxy.unseen(); !error.empty())
    hopper_.block.fail_with(error);
  for (Store& s : stores_) write(s);
  stores_.clear();
}

}  // namespace simt
