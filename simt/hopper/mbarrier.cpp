#include "simt/hopper/mbarrier.h"

#include <algorithm>

#include "simt/device/control.h"
#include "simt/hopper/hopper.h"

namespace simt {
namespace {

constexpr unsigned most_arrivals = (1u << 20) - 1, most_bytes = (1u << 20) - 1;
constexpr uint64_t mark = 0x4D62'6172'7269'6572;  // the stand-in's content of a valid mbarrier
constexpr unsigned most_idle = 1000;

}  // namespace

// ---- From init to inval ------------------------------------------------------------------------

Mbarriers::Mbarrier* Mbarriers::find(const uint64_t* at) {
  for (Mbarrier& m : all_)
    if (m.at == at) return &m;
  return nullptr;
}

std::string Mbarriers::name(const Mbarrier& m) const {
  const std::string place = hopper_.block.name_shared(reinterpret_cast<uintptr_t>(m.at));
  return (place.starts_with("byte ") ? "the mbarrier at " : "the mbarrier ") + place +
         " (initialised" + simt::at(m.site) + ")";
}

std::string Mbarriers::in(uintptr_t begin, size_t bytes) const {
  for (const Mbarrier& m : all_)
    if (const auto at = reinterpret_cast<uintptr_t>(m.at); at < begin + bytes && begin < at + 8)
      return "over " + name(m);
  return {};
}

void Mbarriers::init(uint64_t* at, unsigned arrivals, Site site) {
  Block& block = hopper_.block;
  block.check_shared(at, 8, "mbarrier.init", site);
  hopper_.proxy.note({at, 8}, block.running().id);
  if (const Mbarrier* m = find(at))
    block.fail(
        "calls mbarrier.init on " + name(*m) + ", which is valid: mbarrier.inval is missing,",
        site);
  if (arrivals == 0 || arrivals > most_arrivals)
    block.fail("calls mbarrier.init for " + std::to_string(arrivals) +
                   " arrivals, but an mbarrier counts 1 to " + std::to_string(most_arrivals) + ",",
               site);
  all_.push_back({.at = at,
                  .arrivals = arrivals,
                  .missing = arrivals,
                  .maker = block.running().id,
                  .site = site});
  *at = mark;
  hopper_.proxy.absorb({at, 8});
}

void Mbarriers::inval(uint64_t* at, Site site) {
  Mbarrier& m = valid(at, "mbarrier.inval", site);
  for (const Wait& wait : waits_)
    if (wait.mbarrier == &m)
      hopper_.block.fail("calls mbarrier.inval on " + name(m) + ", for which " +
                             simt::name(hopper_.block.threads()[wait.thread]) + " waits,",
                         site);
  if (hopper_.tma.completes_on(at))
    hopper_.block.fail("calls mbarrier.inval on " + name(m) + " with a TMA load in flight,", site);
  for (const Load& load : m.loads) hopper_.proxy.is_seen(load.number);
  *at = ~uint64_t{0};
  hopper_.proxy.absorb({at, 8});
  // Waits point into all_, so its other elements must not move.
  m.at = nullptr;
}

Mbarriers::Mbarrier& Mbarriers::valid(uint64_t* at, const char* what, Site site) {
  Block& block = hopper_.block;
  block.check_shared(at, 8, what, site);
  if (*at != mark) hopper_.proxy.note({at, 8}, block.running().id);  // finds who overwrote it
  if (Mbarrier* m = find(at)) return *m;
  block.fail("calls " + std::string(what) + " on " +
                 block.name_shared(reinterpret_cast<uintptr_t>(at)) +
                 ", which is not an mbarrier: not initialised yet, or invalidated,",
             site);
}

void Mbarriers::fence(unsigned thread) {
  for (Mbarrier& m : all_) m.fenced |= m.maker == thread;
}

void Mbarriers::check_use(uint64_t* at, const char* what, Site site) {
  const Mbarrier& m = valid(at, what, site);
  if (!m.fenced)
    hopper_.block.fail("lets a " + std::string(what) + " complete on " + name(m) + ", but " +
                           simt::name(hopper_.block.threads()[m.maker]) +
                           " has not executed fence.mbarrier_init since,",
                       site);
}

// ---- Arrivals and bytes ------------------------------------------------------------------------

void Mbarriers::expect_tx(uint64_t* at, unsigned bytes, const char* what, Site site) {
  Mbarrier& m = valid(at, what, site);
  if (bytes > most_bytes || m.bytes + bytes > most_bytes)
    hopper_.block.fail("expects " + std::to_string(m.bytes + bytes) + " bytes at " + name(m) +
                           ", but a phase counts at most " + std::to_string(most_bytes) + ",",
                       site);
  m.bytes += bytes;
  m.expected += bytes;
  progress();
}

void Mbarriers::arrive(uint64_t* at, const char* what, Site site) {
  Mbarrier& m = valid(at, what, site);
  if (m.missing == 0)
    hopper_.block.fail("calls " + std::string(what) + " on " + name(m) +
                           ", but all arrivals of phase " + std::to_string(m.phase) +
                           " have come (it expects " + std::to_string(m.arrivals) +
                           "): one arrival too many,",
                       site);
  --m.missing;
  progress();
  complete_if_done(m);
}

void Mbarriers::complete_tx(uint64_t* at, size_t bytes, unsigned load) {
  Mbarrier* const m = find(at);
  if (!m) return;  // inval refuses while a load is in flight
  m->bytes -= static_cast<int64_t>(bytes);
  m->loads.push_back({load, m->phase});
  progress();
  complete_if_done(*m);
}

void Mbarriers::complete_if_done(Mbarrier& m) {
  if (m.missing || m.bytes) return;
  for (const Wait& wait : waits_)
    if (wait.mbarrier == &m && wait.woken)
      hopper_.block.fail_with(
          "phase " + std::to_string(m.phase) + " of " + name(m) + " ends before " +
          simt::name(hopper_.block.threads()[wait.thread]) + ", which waits" + simt::at(wait.site) +
          ", has seen the end of phase " + std::to_string(wait.phase) + ": nothing orders the two");
  ++m.phase;
  m.missing = m.arrivals;
  m.expected = 0;
  std::vector<unsigned> threads;
  for (Wait& wait : waits_) {
    if (wait.mbarrier != &m) continue;
    if (!wait.ready) threads.push_back(wait.thread);
    wait.woken = wait.ready = true;
  }
  std::sort(threads.begin(), threads.end());
  if (order != Order::reverse) std::reverse(threads.begin(), threads.end());
  for (const unsigned t : threads) hopper_.block.wake(t);
}

// ---- Waits -------------------------------------------------------------------------------------

// Whether the phase with this parity has completed: the one before the current phase, if any. If
// so, the loads that completed in it become visible.
bool Mbarriers::has_ended(Mbarrier& m, unsigned parity) {
  if ((m.phase & 1) == parity) return false;
  std::erase_if(m.loads, [&](const Load& load) {
    if (load.phase >= m.phase) return false;
    hopper_.proxy.is_seen(load.number);
    return true;
  });
  return true;
}

void Mbarriers::count_wait(const Mbarrier& m, unsigned parity) {
  if constexpr (counting) {
    ++Recorder::here().counters.mbarrier_waits;
    Recorder::here().counters.mbarrier_stalls += (m.phase & 1) == parity;
  }
}

// False: time_out() woke the thread.
bool Mbarriers::park(Mbarrier& m, bool tries, Site site) {
  const unsigned me = hopper_.block.running().id;
  waits_.push_back({&m, m.phase, me, site, tries});
  hopper_.block.park(site);
  const auto mine =
      std::find_if(waits_.begin(), waits_.end(), [=](const Wait& w) { return w.thread == me; });
  const bool ended = mine->woken;
  waits_.erase(mine);
  return ended;
}

void Mbarriers::wait(uint64_t* at, unsigned parity, Site site) {
  Mbarrier& m = valid(at, "mbarrier.try_wait", site);
  count_wait(m, parity);
  while (!has_ended(m, parity)) park(m, false, site);
}

bool Mbarriers::try_wait(uint64_t* at, unsigned parity, Site site) {
  Mbarrier& m = valid(at, "mbarrier.try_wait", site);
  count_wait(m, parity);
  return has_ended(m, parity) || (park(m, true, site) && has_ended(m, parity));
}

bool Mbarriers::time_out() {
  if (++idle_ > most_idle) return false;
  bool any = false;
  for (Wait& wait : waits_)
    if (wait.tries && !wait.ready) hopper_.block.wake(wait.thread), wait.ready = any = true;
  return any;
}

// ---- Messages ----------------------------------------------------------------------------------

std::string Mbarriers::state(const Mbarrier& m) const {
  std::string text;
  if (m.missing)
    text =
        std::to_string(m.arrivals - m.missing) + " of " + std::to_string(m.arrivals) + " arrivals";
  if (m.bytes)
    text += std::string(text.empty() ? "" : " and ") +
            std::to_string(int64_t(m.expected) - m.bytes) + " of " + std::to_string(m.expected) +
            " expected bytes";
  return text + " have come";
}

// Empty if no thread waits for an mbarrier. Otherwise what each thread waits for; further threads
// with the same wait are only counted.
std::string Mbarriers::hang() const {
  if (waits_.empty()) return {};
  std::string text;
  std::vector<std::string> said;
  unsigned returned = 0, more = 0;
  for (const Thread& t : hopper_.block.threads()) {
    if (t.returned) {
      ++returned;
      continue;
    }
    const auto wait =
        std::find_if(waits_.begin(), waits_.end(), [&](const Wait& w) { return w.thread == t.id; });
    std::string what = "waits" + simt::at(t.site);
    if (wait != waits_.end())
      what += " for the end of phase " + std::to_string(wait->phase) + " of " +
              name(*wait->mbarrier) + ", where " + state(*wait->mbarrier);
    if (std::find(said.begin(), said.end(), what) != said.end()) {
      ++more;
      continue;
    }
    said.push_back(what);
    text += (text.empty() ? "" : "; ") + simt::name(t) + " " + what;
  }
  if (more) text += "; " + std::to_string(more) + " more wait at the same lines";
  if (returned) text += "; " + std::to_string(returned) + " have returned";
  return text + ": no thread can continue";
}

}  // namespace simt
