#include "simt/races/clocks.h"

#include <algorithm>
#include <utility>

namespace simt {

void Clocks::begin_launch() {
  launch_begin_ = next_;
  blocks_.clear();
  flags_[0].clear(), flags_[1].clear();
  logs_.clear();
}

void Clocks::begin_block(unsigned threads) {
  if (threads != threads_) {
    threads_ = threads;
    now_.resize(threads);
    known_.assign(size_t{threads} * threads, 0);
    fenced_[0].resize(threads), fenced_[1].resize(threads);
    learnt_.resize(threads);
  }
  block_begin_ = barrier_ = latest_ = next_;
  std::fill(now_.begin(), now_.end(), next_);
  blocks_.push_back(next_);
  crossed_ = false;
  if (fenced_since_ || fenced_before_)
    for (const Scope scope : {Scope::block, Scope::device}) {
      std::fill(fenced_[int(scope)].begin(), fenced_[int(scope)].end(), Fenced{});
      fenced_by_all_[int(scope)] = {};
    }
  fenced_since_ = fenced_before_ = false;
  for (Lessons& l : learnt_) l.clear();
  learnt_by_all_.clear();
  learnt_since_ = false;
  flags_[1].clear();
}

size_t Clocks::block_of(Stamp stamp) const {
  return size_t(std::upper_bound(blocks_.begin(), blocks_.end(), stamp) - blocks_.begin()) - 1;
}

// ---- Waits --------------------------------------------------------------------------------------
void Clocks::wait_all() {
  if (fenced_since_)
    for (const int scope : {0, 1})
      for (Fenced& f : fenced_[scope]) fenced_by_all_[scope].add(f), f = {};
  fenced_before_ |= std::exchange(fenced_since_, false);
  if (learnt_since_)
    for (Lessons& l : learnt_) {
      for (const Learnt& one : l) learn(learnt_by_all_, one);
      l.clear();
    }
  learnt_since_ = false;
  barrier_ = ++latest_;
  std::fill(now_.begin(), now_.end(), barrier_);
}

void Clocks::wait(const std::vector<unsigned>& threads) {
  const unsigned warp = threads.front() / 32;
  if (std::any_of(threads.begin(), threads.end(), [=](unsigned t) { return t / 32 != warp; }))
    crossed_ = true;
  const unsigned begin = crossed_ ? 0 : warp * 32,
                 end = crossed_ ? threads_ : std::min(threads_, begin + 32);
  std::vector<Stamp> joint(end - begin, 0);
  Stamp last = 0;
  for (const unsigned t : threads) {
    const Stamp* const row = &known_[size_t{t} * threads_];
    for (unsigned i = begin; i < end; ++i) joint[i - begin] = std::max(joint[i - begin], row[i]);
    last = std::max(last, now_[t]);
  }
  for (const unsigned t : threads) joint[t - begin] = std::max(joint[t - begin], now_[t] + 1);
  latest_ = std::max(latest_, last + 1);
  for (const unsigned t : threads) {
    std::copy(joint.begin(), joint.end(), &known_[size_t{t} * threads_ + begin]);
    now_[t] = last + 1;
  }
  if (fenced_since_)
    for (const int scope : {0, 1}) {
      Fenced all;
      for (const unsigned t : threads) all.add(fenced_[scope][t]);
      for (const unsigned t : threads) fenced_[scope][t] = all;
    }
  if (learnt_since_) {
    Lessons all;
    for (const unsigned t : threads)
      for (const Learnt& one : learnt_[t]) learn(all, one);
    for (const unsigned t : threads) learnt_[t] = all;
  }
}

// ---- Fences and flags ---------------------------------------------------------------------------
void Clocks::Fenced::add(const Fenced& other) {
  before = std::max(before, other.before);
  if (row.size() < other.row.size()) row.resize(other.row.size());
  for (size_t i = 0; i < other.row.size(); ++i) row[i] = std::max(row[i], other.row[i]);
  for (const Learnt& one : other.learnt) learn(learnt, one);
}

void Clocks::learn(Lessons& all, const Learnt& one) {
  for (Learnt& l : all)
    if (l.log == one.log) {
      l.entries = std::max(l.entries, one.entries);
      return;
    }
  all.push_back(one);
}

void Clocks::fence(unsigned thread, Scope scope) {
  Fenced now{.before = barrier_, .row = std::vector<Stamp>(threads_)};
  const Stamp* const row = &known_[size_t{thread} * threads_];
  for (unsigned i = 0; i < threads_; ++i)
    if (crossed_ || i / 32 == thread / 32) now.row[i] = row[i];
  now.row[thread] = now_[thread] + 1;
  now.learnt = learnt_by_all_;
  for (const Learnt& one : learnt_[thread]) learn(now.learnt, one);
  fenced_[int(Scope::block)][thread].add(now);
  if (scope == Scope::device) fenced_[int(Scope::device)][thread].add(now);
  fenced_since_ = true;
  latest_ = std::max(latest_, ++now_[thread]);
}

void Clocks::write_flag(unsigned thread, uintptr_t address, bool in_shared, bool adds) {
  if (!adds && !flags(in_shared).empty()) flags(in_shared).erase(address);
  if (!fenced_since_ && !fenced_before_) return;
  Log*& log = flags(in_shared)[address];
  if (!log) log = &logs_.emplace_back();
  Entry entry{.block = blocks_.size() - 1, .fenced = {}};
  for (const int scope : {0, 1}) {
    entry.fenced[scope] = fenced_by_all_[scope];
    entry.fenced[scope].add(fenced_[scope][thread]);
  }
  log->entries.push_back(std::move(entry));
}

void Clocks::read_flag(unsigned thread, uintptr_t address, bool in_shared) {
  if (flags(in_shared).empty()) return;
  const auto found = flags(in_shared).find(address);
  if (found == flags(in_shared).end()) return;
  const std::vector<Entry>& entries = found->second->entries;
  learn(learnt_[thread], {found->second, entries.size()});
  learnt_since_ = true;
  for (size_t i = entries.size(); i-- > 0 && entries[i].block == blocks_.size() - 1;) {
    crossed_ = true;
    const std::vector<Stamp>& row = entries[i].fenced[int(Scope::block)].row;
    Stamp* const mine = &known_[size_t{thread} * threads_];
    for (size_t t = 0; t < row.size(); ++t) mine[t] = std::max(mine[t], row[t]);
  }
}

bool Clocks::has_learnt(Stamp stamp, unsigned thread, unsigned me) const {
  const size_t block = block_of(stamp);
  std::vector<const Log*> asked;
  const auto tell = [&](const Learnt& one) { return tells(one, block, stamp, thread, asked); };
  return std::any_of(learnt_by_all_.begin(), learnt_by_all_.end(), tell) ||
         std::any_of(learnt_[me].begin(), learnt_[me].end(), tell);
}

// Checks first the entries of `block`, which are adjacent, then what any entry's fence had learnt.
bool Clocks::tells(const Learnt& one, size_t block, Stamp stamp, unsigned thread,
                   std::vector<const Log*>& asked) {
  const auto begin = one.log->entries.begin(), end = begin + ptrdiff_t(one.entries);
  const auto by_block = [](const Entry& e, size_t b) { return e.block < b; };
  for (auto e = std::lower_bound(begin, end, block, by_block); e != end && e->block == block; ++e)
    if (e->fenced[int(Scope::device)].holds(stamp, thread)) return true;
  if (std::find(asked.begin(), asked.end(), one.log) != asked.end()) return false;
  asked.push_back(one.log);
  for (auto e = begin; e != end; ++e)
    for (const Learnt& further : e->fenced[int(Scope::device)].learnt)
      if (tells(further, block, stamp, thread, asked)) return true;
  return false;
}

}  // namespace simt
