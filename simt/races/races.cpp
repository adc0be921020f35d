#include "simt/races/races.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

extern "C" char __data_start, _end;  // the range of the program's static variables

namespace simt {
namespace {

// More accesses would take minutes to watch. A limit on their number, unlike one on time, finds the
// same races in each run.
size_t most_accesses() {
  static const size_t most = [] {
    const char* set = std::getenv("SIMT_RACES");
    return (set ? std::strtoull(set, nullptr, 10) : 200) * 1'000'000;
  }();
  return most;
}

bool is_write(Touch touch) { return touch != Touch::read; }

}  // namespace

Races& Races::instance() {
  static Races& one = *new Races;  // never destroyed: streams may launch during exit
  return one;
}

// ---- Launches and blocks ------------------------------------------------------------------------
void Races::begin_launch(const std::string& kernel, const std::array<unsigned, 3>& block_shape) {
  stopped_ |= accesses_ >= most_accesses();
  launches_ += !stopped_;
  kernel_ = kernel, block_shape_ = block_shape;
  if (number_) --queued_;
  blocks_.clear();
  shadow_.clear();
  clocks_.begin_launch();
}

void Races::begin_block(const std::array<unsigned, 3>& index, unsigned threads) {
  if (stopped_) return;
  blocks_.push_back(index);
  last_block_work.accesses.assign(threads, 0), last_block_work.barriers = 0;
  shared_.clear();
  shadow_.pools[1].clear();
  clocks_.begin_block(threads);
}

// A read of unwritten memory is reported unless its place is in a race: then another thread wrote
// the bytes later.
void Races::end_block() {
  pause();
  if (!stopped_) clocks_.end_block();
  for (Race& read : unwritten_)
    if (!racing_.contains(read.second.place)) races_.push_back(std::move(read));
  unwritten_.clear();
}

void Races::shared_memory(const void* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  if (bytes) shared_.push_back({at, at + bytes});
}

// ---- Accesses -----------------------------------------------------------------------------------
Races::Where Races::where(uintptr_t address) const {
  if (is_device_address && is_device_address(reinterpret_cast<const void*>(address)))
    return Where::device;
  for (const Range& r : shared_)
    if (address - r.begin < r.end - r.begin) return Where::shared;
  if (address >= reinterpret_cast<uintptr_t>(&__data_start) &&
      address < reinterpret_cast<uintptr_t>(&_end))
    return Where::program;
  return Where::elsewhere;
}

// Calls use(cell, address) for the cells of these bytes, by whole words if possible.
template <class Use>
void Races::each_cell(uintptr_t begin, size_t bytes, bool in_shared, Use use) {
  constexpr size_t word = Shadow::word;
  const uintptr_t end = begin + bytes;
  for (uintptr_t at = begin / word * word; at < end; at += word) {
    Cell* const cell = shadow_.at(at);
    if (!cell) {
      stopped_ = true, me_ = nobody;
      return;
    }
    const uintptr_t from = std::max(at, begin), to = std::min(at + word, end);
    auto& parts = shadow_.pools[in_shared].bytes;
    const bool is_old = std::max(cell->written, cell->reads.stamp) < oldest(in_shared);
    if (is_old) *cell = {};
    if (to - from == word && !cell->by_bytes) {
      use(*cell, at);
      continue;
    }
    if (!cell->by_bytes) {
      std::array<Cell, word>& bytes_of = parts.emplace_back();
      for (Cell& b : bytes_of) {
        b = *cell;
        b.more = 0;
        for (uint32_t i = cell->more; i; i = shadow_.pools[in_shared].more[i].next) {
          const Reads reads = shadow_.pools[in_shared].more[i].reads;
          b.more = shadow_.pools[in_shared].add(reads, b.more);
        }
      }
      shadow_.pools[in_shared].drop(cell->more);
      *cell = {};
      cell->by_bytes = true;
      cell->more = uint32_t(parts.size() - 1);
    }
    cell->written = clocks_.now(me_);
    for (uintptr_t b = from; b < to; ++b) use(parts[cell->more][b - at], b);
  }
}

void Races::note(Place place, Touch kind, const void* address, size_t bytes, bool is_flag) {
  settle();
  const auto begin = reinterpret_cast<uintptr_t>(address);
  Access a{place, kind, false, where(begin), begin, bytes};
  if (a.where == Where::elsewhere) return;
  if (++accesses_ > most_accesses()) {
    stopped_ = true, me_ = nobody;
    return;
  }
  ++last_block_work.accesses[me_];
  const bool is_atomic = kind == Touch::atomic;
  a.is_strong = is_atomic || (is_flag && !a.in_shared());
  if (a.where == Where::device) {
    Unwritten& memory = Unwritten::instance();
    if (const uintptr_t used = kind == Touch::write ? 0 : memory.first_used(begin, bytes))
      add_unwritten(used, a);
    if (is_write(kind)) memory.wrote(address, bytes);
  }
  each_cell(begin, bytes, a.in_shared(),
            [&](Cell& cell, uintptr_t address_of) { touch(cell, address_of, a); });
  if (!a.is_strong || me_ == nobody) return;
  if (kind != Touch::write) clocks_.read_flag(me_, begin, a.in_shared());
  if (kind != Touch::read) clocks_.write_flag(me_, begin, a.in_shared(), is_atomic);
}

void Races::touch(Cell& c, uintptr_t address, const Access& a) {
  if (number_ && a.where == Where::device && !host_.empty()) check_host(address, a);
  if (a.in_shared() && !c.written && a.touch != Touch::write && a.touch != Touch::copy)
    add_unwritten(address, a);
  if (c.written && !(c.is_strong && a.is_strong) &&
      (c.in_flight || !clocks_.is_before(c.written, c.writer, me_)) && is_new(c.place, a.place)) {
    const Party first{c.in_flight   ? Touch::copy
                      : c.is_atomic ? Touch::atomic
                                    : Touch::write,
                      c.place, c.writer, clocks_.block_of(c.written)};
    const bool both_plain = a.touch == Touch::write && !c.is_atomic && !c.in_flight;
    Race race{.address = address, .first = first, .second = me(a), .has_first = true};
    race.missing = missing(first, c.in_flight);
    if (!both_plain)
      add(std::move(race), a.where);
    else if (!over_bytes_)
      expect_same(std::move(race), a);
  }
  if (!is_write(a.touch)) return add_reads(c, a);
  Shadow::Pool& pool = shadow_.pools[a.in_shared()];
  check_reads(c.reads, address, a);
  for (uint32_t i = c.more; i; i = pool.more[i].next) check_reads(pool.more[i].reads, address, a);
  pool.drop(c.more);
  c = {.written = clocks_.now(me_),
       .place = a.place,
       .writer = uint16_t(me_),
       .is_strong = a.is_strong,
       .is_atomic = a.touch == Touch::atomic,
       .in_flight = a.touch == Touch::copy};
}

void Races::add_unwritten(uintptr_t address, const Access& a) {
  if (!places_.insert(a.place).second) return;
  unwritten_.push_back({.address = address,
                        .variable = name(address, a.where),
                        .second = me(a),
                        .has_first = false});
}

void Races::check_reads(const Reads& r, uintptr_t address, const Access& a) {
  if (r.is_strong && a.is_strong) return;
  if (!is_new(r.place, a.place)) return;
  for (uint32_t lanes = r.lanes; lanes; lanes &= lanes - 1) {
    const unsigned reader = r.warp * 32u + unsigned(std::countr_zero(lanes));
    if (clocks_.is_before(r.stamp, reader, me_)) continue;
    const Party first{Touch::read, r.place, reader, clocks_.block_of(r.stamp)};
    add({.address = address,
         .missing = missing(first, false),
         .first = first,
         .second = me(a),
         .has_first = true},
        a.where);
    return;
  }
}

void Races::add_reads(Cell& c, const Access& a) {
  const Reads mine{.stamp = clocks_.now(me_),
                   .place = a.place,
                   .lanes = 1u << me_ % 32,
                   .warp = uint16_t(me_ / 32),
                   .is_strong = a.is_strong};
  const auto is_same = [&](const Reads& r) {
    return r.stamp == mine.stamp && r.place == mine.place && r.warp == mine.warp &&
           r.is_strong == mine.is_strong;
  };
  if (is_same(c.reads)) {
    c.reads.lanes |= mine.lanes;
    return;
  }
  Shadow::Pool& pool = shadow_.pools[a.in_shared()];
  Reads* free = nullptr;
  unsigned of_other_blocks = 0;
  // A read that happens before this one needn't be remembered: a write that isn't ordered after it
  // isn't ordered after this one either.
  const auto visit = [&](Reads& r) {
    if (r.lanes && is_same(r)) {
      r.lanes |= mine.lanes;
      return true;
    }
    if (r.stamp < clocks_.barrier() && r.stamp >= clocks_.block_begin()) r.lanes = 0;
    if (r.stamp < clocks_.block_begin() && r.lanes && ++of_other_blocks > 2) r.lanes = 0;
    if (!r.lanes && !free) free = &r;
    return false;
  };
  if (visit(c.reads)) return;
  for (uint32_t i = c.more; i; i = pool.more[i].next)
    if (visit(pool.more[i].reads)) return;
  if (free)
    *free = mine;
  else
    c.more = pool.add(mine, c.more);
}

void Races::expect_same(Race race, const Access& a) {
  over_ = a.begin, over_bytes_ = a.bytes, over_where_ = a.where;
  before_.resize(over_bytes_);
  std::memcpy(before_.data(), reinterpret_cast<const void*>(over_), over_bytes_);
  over_race_ = std::move(race);
}

void Races::settle_now() {
  const bool is_same =
      !std::memcmp(before_.data(), reinterpret_cast<const void*>(over_), over_bytes_);
  over_bytes_ = 0;
  if (!is_same) add(std::move(over_race_), over_where_);
}

// ---- Managed memory -----------------------------------------------------------------------------
size_t Races::issue() {
  const std::lock_guard lock(host_mutex_);
  ++queued_;
  return ++issued_;
}

void Races::note_host(Place place, Touch touch, const void* address, size_t bytes) {
  if (!is_device_address || !is_device_address(address)) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(host_mutex_);
  for (uintptr_t at = begin / Shadow::word; at <= (begin + bytes - 1) / Shadow::word; ++at) {
    HostTouches& h = host_[at];
    if (touch == Touch::read)
      h.reads = issued_, h.read = place;
    else
      h.writes = issued_, h.write = place;
  }
}

// Reports host accesses made after this launch was queued, without a wait for it.
void Races::check_host(uintptr_t address, const Access& a) {
  const auto found = host_.find(address / Shadow::word);
  if (found == host_.end()) return;
  const HostTouches& h = found->second;
  const auto race = [&](size_t last, Place place, Touch touch) {
    if (last < number_ || !is_new(place, a.place)) return;
    add({.address = address,
         .missing = "nothing waited for the kernel (cudaDeviceSynchronize)",
         .first = {touch, place, host, 0},
         .second = me(a),
         .has_first = true},
        a.where);
  };
  race(h.writes, h.write, Touch::write);
  if (is_write(a.touch)) race(h.reads, h.read, Touch::read);
}

// ---- Asynchronous copies ------------------------------------------------------------------------
void Races::copy_begins(Place place, void* to, size_t bytes) {
  note(place, Touch::copy, to, bytes);
}

// From here on, the copy counts as a write that this thread makes now.
void Races::copy_ends(void* to, size_t bytes) {
  if (me_ == nobody) return;
  each_cell(reinterpret_cast<uintptr_t>(to), bytes, true, [&](Cell& c, uintptr_t) {
    if (c.in_flight && c.writer == me_) c.written = clocks_.now(me_), c.in_flight = false;
  });
}

}  // namespace simt
