#include "simt/hopper/proxy_state.h"

#include <algorithm>
#include <cstring>

namespace simt {
namespace {

constexpr size_t chunk_bytes = 512;
// In the first blocks, and in later ones, which execute the same code.
constexpr unsigned first_blocks = 4;
constexpr size_t exact_bytes = size_t{32} << 20, later_exact_bytes = size_t{4} << 20;
constexpr unsigned first_turns = 4;

uintptr_t begin_of(Bytes b) { return reinterpret_cast<uintptr_t>(b.begin); }
uintptr_t end_of(Bytes b) { return begin_of(b) + b.count; }

}  // namespace

void ProxyState::begin() {
  areas_.clear();
  uses_.clear();
  fenced_.assign(block_.threads().size(), 0);
  fenced_unknown_ = false;
  clock_ = 1;
  numbers_ = 0;
  compared_ = 0;
  exact_ = true;
  most_exact_ =
      blockIdx.x + blockIdx.y + blockIdx.z < first_blocks ? exact_bytes : later_exact_bytes;
  full_at_ = 0;
  since_ = block_.running().id;
  several_ = skipped_ = is_active_ = false;
  turns_ = 0;
  hot_at_ = 0;
  find_areas();
  // Bytes that earlier instructions have written have no known writer; all bytes were 0xFF before.
  for (Area& area : areas_)
    for (size_t begin = 0; begin < area.copy.size(); begin += chunk_bytes) {
      const size_t end = std::min(begin + chunk_bytes, area.copy.size());
      if (!std::memcmp(area.data + begin, &area.copy[begin], end - begin)) continue;
      for (size_t i = begin; i < end; ++i)
        if (area.data[i] != 0xFF) area.copy[i] = area.data[i], area.writer[i] = unknown;
    }
}

// A __shared__ variable appears when a thread reaches its declaration.
void ProxyState::find_areas() {
  block_.each_shared([&](unsigned char* data, size_t bytes) {
    for (const Area& area : areas_)
      if (area.data == data) return;
    areas_.push_back({data,
                      std::vector<unsigned char>(bytes, 0xFF),
                      std::vector<Writer>(bytes, nobody),
                      std::vector<uint32_t>(bytes),
                      std::vector<bool>(bytes / chunk_bytes + 1),
                      {}});
  });
}

void ProxyState::compare(Area& area, size_t chunk, unsigned thread, bool hands_over) {
  const size_t begin = chunk * chunk_bytes, n = std::min(chunk_bytes, area.copy.size() - begin);
  compared_ += n;
  if (!std::memcmp(area.data + begin, area.copy.data() + begin, n)) return;
  changed(area, begin, begin + n, thread, hands_over);
  if (area.is_hot[chunk]) return;
  area.is_hot[chunk] = true;
  area.hot.push_back(unsigned(chunk));
}

void ProxyState::compare_all(unsigned thread, bool hands_over) {
  find_areas();
  for (Area& area : areas_)
    for (size_t chunk = 0; chunk * chunk_bytes < area.copy.size(); ++chunk)
      compare(area, chunk, thread, hands_over);
  full_at_ = hot_at_ = ++clock_;
  since_ = thread, several_ = skipped_ = false;
}

void ProxyState::compare_hot(unsigned thread, bool hands_over) {
  for (Area& area : areas_)
    for (const unsigned chunk : area.hot) compare(area, chunk, thread, hands_over);
  hot_at_ = ++clock_;
  skipped_ = false;
}

void ProxyState::note(unsigned thread) {
  exact_ ? compare_all(thread, false) : compare_hot(thread, false);
}

void ProxyState::note(Bytes b, unsigned thread) {
  find_areas();
  for (Area& area : areas_) {
    const auto data = reinterpret_cast<uintptr_t>(area.data);
    const uintptr_t begin = std::max(begin_of(b), data),
                    end = std::min(end_of(b), data + area.copy.size());
    if (begin >= end) continue;
    for (size_t chunk = (begin - data) / chunk_bytes; chunk * chunk_bytes < end - data; ++chunk)
      compare(area, chunk, thread, false);
  }
}

void ProxyState::hands_over(unsigned thread, unsigned to) {
  if (exact_ || thread / 32 != to / 32) {
    compare_all(thread, true);
    since_ = to;
    exact_ = compared_ < most_exact_;
    turns_ = 0, is_active_ = false;
  } else {
    const bool begins_round = to == since_;
    if (begins_round || turns_ < first_turns || is_active_)
      compare_hot(thread, true);
    else
      skipped_ = true;
    turns_ = begins_round ? 0 : turns_ + 1;
    several_ |= !begins_round;
  }
}

// The place of a store is known only to lie between two of the thread's waits.
void ProxyState::changed(Area& area, size_t begin, size_t end, unsigned thread, bool hands_over) {
  ++clock_;
  is_active_ = true;
  const bool is_hot = area.is_hot[begin / chunk_bytes],
             is_exact = !several_ || (is_hot && !skipped_);
  const auto writer = Writer(is_exact ? thread + 1 : some_lane | thread / 32);
  // In a chunk that isn't compared at each switch, the store may be as old as the last comparison.
  const uint32_t time = !exact_ && !is_hot ? full_at_ : skipped_ ? hot_at_ : clock_;
  const Thread& t = block_.threads()[thread];
  const auto where = [&]() -> std::string {
    if (!is_exact) return {};
    if (t.returned) return " before it returns";
    if (!hands_over && !t.site.line()) return {};
    return (hands_over ? " before its wait" : " after its wait") + at(t.site);
  };
  for (size_t i = begin; i < end; ++i) {
    if (area.data[i] == area.copy[i]) continue;
    size_t past = i + 1;
    while (past < end && area.data[past] != area.copy[past]) ++past;
    std::memcpy(area.copy.data() + i, area.data + i, past - i);
    std::fill(&area.writer[i], &area.writer[past - 1] + 1, writer);
    std::fill(&area.time[i], &area.time[past - 1] + 1, time);
    check_write(reinterpret_cast<uintptr_t>(area.data) + i,
                reinterpret_cast<uintptr_t>(area.data) + past, writer, where);
    i = past - 1;
  }
}

bool ProxyState::is_fenced(Writer w, uint32_t time) const {
  if (w == nobody) return true;
  if (w == unknown) return fenced_unknown_;
  if (!(w & some_lane)) return time < fenced_[w - 1u];
  const size_t first = (w & ~some_lane) * 32u, last = std::min(first + 32, fenced_.size());
  return std::any_of(fenced_.begin() + ptrdiff_t(first), fenced_.begin() + ptrdiff_t(last),
                     [=](uint32_t fenced) { return time < fenced; });
}

void ProxyState::wrote(Bytes b, unsigned thread, const char* who, Site site) {
  ++clock_;
  absorb(b);
  for (Area& area : areas_) {
    const auto data = reinterpret_cast<uintptr_t>(area.data);
    if (begin_of(b) < data || end_of(b) > data + area.copy.size()) continue;
    const size_t i = begin_of(b) - data;
    std::fill_n(area.writer.begin() + ptrdiff_t(i), b.count, Writer(thread + 1));
    std::fill_n(area.time.begin() + ptrdiff_t(i), b.count, clock_);
  }
  check_write(begin_of(b), end_of(b), Writer(thread + 1),
              [&] { return " by " + std::string(who) + at(site); });
}

void ProxyState::absorb(Bytes b) {
  find_areas();
  for (Area& area : areas_) {
    const auto data = reinterpret_cast<uintptr_t>(area.data);
    if (begin_of(b) < data || end_of(b) > data + area.copy.size()) continue;
    const size_t i = begin_of(b) - data;
    std::memcpy(area.copy.data() + i, area.data + i, b.count);
    std::fill_n(area.writer.begin() + ptrdiff_t(i), b.count, nobody);
  }
}

// The number of bytes from `begin` on that have the same writer and time. memcmp compares pieces of
// both arrays with the same pieces shifted by one element.
size_t ProxyState::same_store(const Area& area, size_t begin, size_t end) {
  const Writer* writer = &area.writer[begin];
  const uint32_t* time = &area.time[begin];
  constexpr size_t piece = 64;
  size_t n = 1;
  const size_t most = end - begin;
  while (n + piece <= most && !std::memcmp(writer + n - 1, writer + n, piece * sizeof *writer) &&
         (*writer == nobody || !std::memcmp(time + n - 1, time + n, piece * sizeof *time)))
    n += piece;
  while (n < most && writer[n] == *writer && (*writer == nobody || time[n] == *time)) ++n;
  return n;
}

uintptr_t ProxyState::unfenced(Bytes b, Writer* writer) const {
  for (const Area& area : areas_) {
    const auto data = reinterpret_cast<uintptr_t>(area.data);
    const uintptr_t begin = std::max(begin_of(b), data),
                    end = std::min(end_of(b), data + area.copy.size());
    for (uintptr_t p = begin; p < end;) {
      const size_t i = p - data, same = same_store(area, i, end - data);
      if (!is_fenced(area.writer[i], area.time[i])) {
        *writer = area.writer[i];
        return p;
      }
      p += same;
    }
  }
  return 0;
}

const ProxyState::Use* ProxyState::overlapping(uintptr_t begin, uintptr_t end,
                                               bool is_write) const {
  for (const Use& use : uses_)
    if (use.is_write == is_write && use.begin < end && begin < use.end) return &use;
  return nullptr;
}

std::string ProxyState::words(const Use& use) const {
  return std::string(use.who) + " of " + name(block_.threads()[use.thread]) + at(use.site);
}

std::string ProxyState::subject(Writer w) const {
  return w & some_lane ? "a thread of warp " + std::to_string(w & ~some_lane)
                       : name(block_.threads()[w - 1u]);
}

std::string ProxyState::writer_words(Writer w) const {
  if (w == unknown) return "a thread has written and none has executed fence.proxy.async since,";
  return subject(w) + " has written without fence.proxy.async since,";
}

void ProxyState::read(Bytes b, const char* who, Site site) const {
  if (const Use* use = overlapping(begin_of(b), end_of(b), true))
    block_.fail("reads " + block_.name_shared(std::max(begin_of(b), use->begin)) + " by " + who +
                    ", but nothing has waited for the " + words(*use) + ", which writes it; read",
                site);
  Writer writer;
  if (const uintptr_t p = unfenced(b, &writer))
    block_.fail("reads " + block_.name_shared(p) + " by " + who + ", which " + writer_words(writer),
                site);
}

Hold ProxyState::hold(Bytes b, const char* who, Site site) {
  uses_.push_back(
      {++numbers_, begin_of(b), end_of(b), who, block_.running().id, site, false, false});
  return numbers_;
}

void ProxyState::note_use(unsigned number) {
  for (size_t i = 0; i < uses_.size(); ++i)
    if (const Use use = uses_[i]; use.number == number)
      note({reinterpret_cast<const void*>(use.begin), use.end - use.begin}, block_.running().id);
}

void ProxyState::release(Hold hold) {
  note_use(hold);
  std::erase_if(uses_, [=](const Use& use) { return use.number == hold; });
}

unsigned ProxyState::comes(Bytes b, const char* who, Site site) {
  const uintptr_t begin = begin_of(b), end = end_of(b);
  const auto place = [&](uintptr_t p) { return block_.name_shared(std::max(begin, p)); };
  const std::string me = std::string("writes by ") + who + " ";
  if (const Use* use = overlapping(begin, end, false))
    block_.fail(me + place(use->begin) + ", which the " + words(*use) + " may still read,", site);
  if (const Use* use = overlapping(begin, end, true))
    block_.fail(me + place(use->begin) +
                    (use->has_come ? ", where nothing has waited for what the " : ", while the ") +
                    words(*use) + (use->has_come ? " has written," : " may still write it,"),
                site);
  Writer writer;
  if (const uintptr_t p = unfenced(b, &writer))
    block_.fail(me + block_.name_shared(p) + ", which " + writer_words(writer), site);
  uses_.push_back({++numbers_, begin, end, who, block_.running().id, site, true, false});
  return numbers_;
}

void ProxyState::has_come(unsigned number) {
  for (Use& use : uses_)
    if (use.number == number) use.has_come = true;
}

void ProxyState::is_seen(unsigned number) {
  note_use(number);
  std::erase_if(uses_, [=](const Use& use) { return use.number == number; });
}

std::string ProxyState::unseen() const {
  for (const Use& use : uses_)
    if (use.is_write)
      return "all threads have returned, but nobody has waited for the " + words(use);
  return {};
}

// An ordinary store to bytes that the async proxy still uses is an error.
void ProxyState::check_write(uintptr_t begin, uintptr_t end, Writer writer,
                             const std::function<std::string()>& where) const {
  const auto fail = [&](const std::string& what, const std::string& why = {}) {
    block_.fail_with(subject(writer) + " writes " + what + where() + why);
  };
  const auto place = [&](const Use* use) {
    return block_.name_shared(std::max(begin, use->begin));
  };
  if (const Use* use = overlapping(begin, end, false))
    fail(place(use), ", which the " + words(*use) + " may still read");
  if (const Use* use = overlapping(begin, end, true))
    fail(place(use), ", but nothing has waited for the " + words(*use) + ", which writes it, too");
  if (reserved)
    if (const std::string what = reserved(block_, begin, end - begin); !what.empty()) fail(what);
}

}  // namespace simt
