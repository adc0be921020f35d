#include "simt/hopper/proxy_state.h"

#include <algorithm>
#include <cstring>

namespace simt {
namespace {

constexpr size_t chunk = 512;  // bytes compared at once

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
  find_areas();
  // What earlier instructions have written has no known writer; all bytes were 0xFF before.
  for (Area& area : areas_)
    for (size_t i = 0; i < area.copy.size(); ++i)
      if (area.data[i] != 0xFF) area.copy[i] = area.data[i], area.writer[i] = unknown;
}

// A __shared__ variable appears when a thread reaches its declaration.
void ProxyState::find_areas() {
  block_.each_shared([&](unsigned char* data, size_t bytes) {
    for (const Area& area : areas_)
      if (area.data == data) return;
    areas_.push_back({data, std::vector<unsigned char>(bytes, 0xFF),
                      std::vector<Writer>(bytes, nobody), std::vector<uint32_t>(bytes)});
  });
}

void ProxyState::note(unsigned thread, bool hands_over) {
  find_areas();
  for (Area& area : areas_) {
    const size_t bytes = area.copy.size();
    for (size_t i = 0; i < bytes; i += chunk) {
      const size_t n = std::min(chunk, bytes - i);
      if (std::memcmp(area.data + i, area.copy.data() + i, n))
        changed(area, i, i + n, thread, hands_over);
    }
  }
}

// Where the thread stores shows only between two of its waits.
void ProxyState::changed(Area& area, size_t begin, size_t end, unsigned thread, bool hands_over) {
  ++clock_;
  for (size_t i = begin; i < end; ++i) {
    if (area.data[i] == area.copy[i]) continue;
    size_t past = i + 1;
    while (past < end && area.data[past] != area.copy[past]) ++past;
    std::memcpy(area.copy.data() + i, area.data + i, past - i);
    std::fill(&area.writer[i], &area.writer[past - 1] + 1, Writer(thread + 1));
    std::fill(&area.time[i], &area.time[past - 1] + 1, clock_);
    const Thread& t = block_.threads()[thread];
    std::string where;
    if (t.returned)
      where = " before it returns";
    else if (hands_over || t.site.line())
      where = (hands_over ? " before its wait" : " after its wait") + at(t.site);
    check_write(reinterpret_cast<uintptr_t>(area.data) + i,
                reinterpret_cast<uintptr_t>(area.data) + past, thread, where);
    i = past - 1;
  }
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
  check_write(begin_of(b), end_of(b), thread, " by " + std::string(who) + at(site));
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

uintptr_t ProxyState::unfenced(Bytes b, Writer* writer) const {
  for (const Area& area : areas_) {
    const auto data = reinterpret_cast<uintptr_t>(area.data);
    const uintptr_t begin = std::max(begin_of(b), data),
                    end = std::min(end_of(b), data + area.copy.size());
    for (uintptr_t p = begin; p < end; ++p)
      if (const size_t i = p - data; !is_fenced(area.writer[i], area.time[i])) {
        *writer = area.writer[i];
        return p;
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

std::string ProxyState::writer_words(Writer w) const {
  if (w == unknown) return "a thread has written and none has executed fence.proxy.async since,";
  return name(block_.threads()[w - 1u]) + " has written without fence.proxy.async since,";
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

void ProxyState::release(Hold hold) {
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
  std::erase_if(uses_, [=](const Use& use) { return use.number == number; });
}

std::string ProxyState::unseen() const {
  for (const Use& use : uses_)
    if (use.is_write)
      return "all threads have returned, but nobody has waited for the " + words(use);
  return {};
}

// An ordinary store is an error in what the async proxy still uses.
void ProxyState::check_write(uintptr_t begin, uintptr_t end, unsigned thread,
                             const std::string& where) const {
  const std::string me = name(block_.threads()[thread]) + " writes ";
  if (const Use* use = overlapping(begin, end, false))
    block_.fail_with(me + block_.name_shared(std::max(begin, use->begin)) + where + ", which the " +
                     words(*use) + " may still read");
  if (const Use* use = overlapping(begin, end, true))
    block_.fail_with(me + block_.name_shared(std::max(begin, use->begin)) + where +
                     ", but nothing has waited for the " + words(*use) + ", which writes it, too");
  if (reserved)
    if (const std::string what = reserved(block_, begin, end - begin); !what.empty())
      block_.fail_with(me + what + where);
}

}  // namespace simt
