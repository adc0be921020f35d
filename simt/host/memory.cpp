#include "simt/host/memory.h"

#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "simt/counters/recorder.h"
#include "simt/device/control.h"
#include "simt/races/races.h"

namespace simt::host {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif
constexpr size_t page = 4096, huge_page = size_t{2} << 20;
// Minimum bytes of canary on either side; also the alignment that cudaMalloc guarantees.
constexpr size_t canary = 256;
constexpr size_t address_space = size_t{1} << 40;
constexpr uintptr_t preferred_begin = 0x200000000000;  // addresses that are easy to recognise
constexpr size_t max_freed = 10000;                    // allocations remembered for messages

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// FA FF FA FF ...: NaN in every type, but different from the 0xFF of fresh memory.
unsigned char canary_byte(uintptr_t address) { return address % 2 ? 0xFF : 0xFA; }
struct CanaryPage {
  unsigned char bytes[2 * page];
  CanaryPage() {
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = canary_byte(i);
  }
};
const unsigned char* canary_bytes(uintptr_t begin) {
  static const CanaryPage all;
  return all.bytes + begin % 2;
}
void paint_canary(uintptr_t begin, uintptr_t end) {
  std::memcpy(reinterpret_cast<void*>(begin), canary_bytes(begin), end - begin);
}
bool is_whole(uintptr_t begin, uintptr_t end) {
  return !std::memcmp(reinterpret_cast<void*>(begin), canary_bytes(begin), end - begin);
}

// ---- Faults -------------------------------------------------------------------------------------
struct sigaction before_us;

void say(const char* format, auto... words) {
  char text[600];
  const int length = std::snprintf(text, sizeof text, format, words...);
  if (write(STDERR_FILENO, text, std::min<size_t>(length, sizeof text - 1)) < 0) return;
}

const char* access(void* context) {
#ifdef __x86_64__
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote" : "read";
#else
  (void)context;
  return "used";
#endif
}

// The operation that caused a fault on this thread; null if the host's own code did.
const char* culprit() {
  if (host_function) return host_function;
  return runs_here || !is_host_thread ? running.load() : nullptr;
}

// Explains the fault, then calls the previous handler or takes the default action.
void on_fault(int signal_number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (device_memory().holds(info->si_addr)) {
    char where[300];
    device_memory().describe(address, where, sizeof where);
    if (culprit())
      say("%s %s memory it does not own: %s\n", culprit(), access(context), where);
    else
      say("host code %s device memory: %s\n", access(context), where);
  }
  if (before_us.sa_flags & SA_SIGINFO)
    before_us.sa_sigaction(signal_number, info, context);
  else if (before_us.sa_handler == SIG_DFL || before_us.sa_handler == SIG_IGN)
    signal(signal_number, SIG_DFL);  // the access is repeated: a debugger stops at its line
  else
    before_us.sa_handler(signal_number);
}

void watch_faults() {
  static const bool once = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGSEGV, &ours, &before_us) == 0;
  }();
  (void)once;
}

bool protect(const Allocation& a, int protection) {
  return mprotect(reinterpret_cast<void*>(a.pages), a.pages_end - a.pages, protection) == 0;
}

}  // namespace

DeviceMemory& device_memory() {
  static auto& memory = *[] {
    Recorder::is_device_address = [](const void* p) { return device_memory().holds(p); };
    Races::is_device_address = Recorder::is_device_address;
    Races::name_device = [](uintptr_t address) { return device_memory().name(address); };
    Lines::name_device = [](uintptr_t at) { return device_memory().name_with_place(at); };
    return new DeviceMemory;  // never destroyed
  }();
  return memory;
}

// ---- Allocations --------------------------------------------------------------------------------
bool DeviceMemory::holds(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return std::any_of(ranges_, ranges_ + n_ranges_,
                     [=](const Range& r) { return address >= r.begin && address < r.end; });
}

// Reserves closed addresses for `bytes`, with a closed page on either side; 0 if none are left.
uintptr_t DeviceMemory::reserve(size_t bytes, size_t alignment) {
  const uintptr_t begin = round_up(next_ + page, alignment);
  if (n_ranges_ && begin + bytes + page <= ranges_[n_ranges_ - 1].end) {
    next_ = begin + bytes;
    return begin;
  }
  if (n_ranges_ == max_ranges) return 0;
  for (size_t size = std::max(address_space, round_up(bytes + alignment + 2 * page, huge_page));
       size >= bytes + alignment + 2 * page; size /= 2) {  // address space may be limited
    void* p = mmap(n_ranges_ ? nullptr : reinterpret_cast<void*>(preferred_begin), size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    next_ = reinterpret_cast<uintptr_t>(p);
    ranges_[n_ranges_] = {next_, next_ + size};
    if constexpr (watching) Unwritten::instance().add_range(next_, next_ + size);
    ++n_ranges_;
    return reserve(bytes, alignment);
  }
  return 0;
}

bool DeviceMemory::manages(const void* p) const {
  if (!holds(p)) return false;
  const std::lock_guard lock(mutex_);
  bool freed = false;
  const Allocation* a = nearest(reinterpret_cast<uintptr_t>(p), freed);
  return a && a->managed && !freed;
}

void* DeviceMemory::allocate(size_t bytes, bool managed) {
  const std::lock_guard lock(mutex_);
  watch_faults();
  if (bytes > left()) return nullptr;
  const size_t whole = round_up(canary + bytes + canary, page);
  const bool huge = whole >= huge_page;  // so that fewer pages are opened and closed
  const uintptr_t pages = reserve(whole, huge ? huge_page : page);
  if (!pages) return nullptr;
  const Allocation a{pages + canary, bytes, pages, pages + whole, managed, {}, 1};
  if (huge) madvise(reinterpret_cast<void*>(pages), whole, MADV_HUGEPAGE);
  if (!protect(a, PROT_READ | PROT_WRITE)) return nullptr;
  std::memset(reinterpret_cast<void*>(a.begin), Unwritten::fresh, bytes);
  if constexpr (watching) Unwritten::instance().allocated(a.begin, bytes);
  paint_canary(a.pages, a.begin);
  paint_canary(a.begin + bytes, a.pages_end);
  if constexpr (asan) {
    __asan_poison_memory_region(reinterpret_cast<void*>(a.pages), canary);
    __asan_poison_memory_region(reinterpret_cast<void*>(a.begin + bytes),
                                a.pages_end - a.begin - bytes);
  }
  if (!open_ && !managed) protect(a, PROT_NONE);
  live_.emplace(pages, a);
  allocated_ += bytes;
  return reinterpret_cast<void*>(a.begin);
}

size_t DeviceMemory::left() const {
  return memory_bytes - std::min<size_t>(memory_bytes, allocated_ + taken_);
}

bool DeviceMemory::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > left()) return false;
  taken_ += bytes;
  return true;
}

bool DeviceMemory::release(void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(reinterpret_cast<uintptr_t>(p) - canary);
  if (found == live_.end()) return false;
  const Allocation a = found->second;
  // New closed pages replace the old ones, which are returned to the system.
  if (mmap(reinterpret_cast<void*>(a.pages), a.pages_end - a.pages, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    throw std::bad_alloc();
  if constexpr (asan)
    __asan_poison_memory_region(reinterpret_cast<void*>(a.pages), a.pages_end - a.pages);
  if constexpr (watching) Unwritten::instance().released(a.begin, a.bytes);
  allocated_ -= a.bytes;
  live_.erase(found);
  freed_.emplace(a.pages, a);
  if (freed_.size() > max_freed) freed_.erase(freed_.begin());
  return true;
}

void DeviceMemory::release_all() {
  const std::lock_guard lock(mutex_);
  while (!live_.empty()) release(reinterpret_cast<void*>(live_.begin()->second.begin));
  taken_ = 0;
}

// ---- Descriptions -------------------------------------------------------------------------------
const Allocation* DeviceMemory::nearest(uintptr_t address, bool& freed) const {
  const Allocation* best = nullptr;
  const auto distance = [=](const Allocation& a) {
    return address < a.begin             ? a.begin - address
           : address < a.begin + a.bytes ? 0
                                         : address - a.begin - a.bytes + 1;
  };
  const auto look = [&](const std::map<uintptr_t, Allocation>& all, bool are_freed) {
    auto i = all.upper_bound(address);
    const auto consider = [&](const Allocation& a) {
      if (best && distance(*best) <= distance(a)) return;
      best = &a;
      freed = are_freed;
    };
    if (i != all.end()) consider(i->second);
    if (i != all.begin()) consider(std::prev(i)->second);
  };
  look(live_, false);
  look(freed_, true);
  return best;
}

void DeviceMemory::describe(uintptr_t address, char* text, size_t size) const {
  const std::lock_guard lock(mutex_);
  bool freed = false;
  const Allocation* a = nearest(address, freed);
  const auto p = reinterpret_cast<void*>(address);
  if (!a) {
    std::snprintf(text, size, "%p is in no allocation made by cudaMalloc", p);
    return;
  }
  const bool inside = address - a->begin < a->bytes, before = address < a->begin;
  std::snprintf(text, size, "%p is %zu bytes %s an allocation of %zu bytes %s", p,
                before   ? a->begin - address
                : inside ? address - a->begin
                         : address - a->begin - a->bytes,
                before   ? "before"
                : inside ? "into"
                         : "past the end of",
                a->bytes,
                freed        ? "freed by cudaFree"
                : a->managed ? "made by cudaMallocManaged"
                             : "made by cudaMalloc");
}

void DeviceMemory::label(const void* p, const std::string& name, size_t element_bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(reinterpret_cast<uintptr_t>(p) - canary);
  if (found != live_.end()) found->second.name = name, found->second.element_bytes = element_bytes;
}

void DeviceMemory::made_at(const void* p, const std::string& place) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(reinterpret_cast<uintptr_t>(p) - canary);
  if (found != live_.end()) found->second.place = place, found->second.number = ++made_[place];
}

std::string DeviceMemory::name_with_place(uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  bool freed = false;
  const Allocation* a = nearest(address, freed);
  if (!a || !a->number || made_.at(a->place) == 1) return name(address);
  return name(address) + " (allocation " + std::to_string(a->number) + " of " + a->place + ")";
}

std::string DeviceMemory::name(uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  bool freed = false;
  const Allocation* a = nearest(address, freed);
  if (!a) return "device memory";
  const size_t byte = address - a->begin;
  if (!a->name.empty() && a->element_bytes)
    return a->name + "[" + std::to_string(byte / a->element_bytes) + "]";
  if (!a->name.empty()) return "byte " + std::to_string(byte) + " of " + a->name;
  return "byte " + std::to_string(byte) + " of an allocation of " + std::to_string(a->bytes) +
         " bytes made by " + (a->managed ? "cudaMallocManaged" : "cudaMalloc");
}

uintptr_t DeviceMemory::end_of(const void* p) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto after = live_.upper_bound(address);
  if (after == live_.begin()) return 0;
  const Allocation& a = std::prev(after)->second;
  return address - a.begin < a.bytes ? a.begin + a.bytes : 0;
}

std::string DeviceMemory::refusal(const void* p, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(p);
  bool freed = false;
  const Allocation* a = nearest(begin, freed);
  char text[300];
  describe(begin, text, sizeof text);
  if (!a || freed || begin - a->begin >= a->bytes) return text;
  if (bytes <= a->begin + a->bytes - begin) return "";
  return std::string(text) + ": " + std::to_string(bytes) + " bytes are too many";
}

// ---- Open and closed ----------------------------------------------------------------------------
void DeviceMemory::each(const std::function<void(uintptr_t, size_t)>& use) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [pages, a] : live_)
    if (a.bytes) use(a.begin, a.bytes);
}

void DeviceMemory::open() {
  const std::lock_guard lock(mutex_);
  if (open_) return;
  open_ = true;
  for (const auto& [pages, a] : live_) protect(a, PROT_READ | PROT_WRITE);
}

void DeviceMemory::open_at(const void* p) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto after = live_.upper_bound(address);
  if (open_ || after == live_.begin()) return;
  const Allocation& a = std::prev(after)->second;
  if (a.managed || address >= a.pages_end || std::ranges::count(opened_, a.pages)) return;
  protect(a, PROT_READ | PROT_WRITE);
  opened_.push_back(a.pages);
}

void DeviceMemory::close() {
  const std::lock_guard lock(mutex_);
  if (open_)
    for (const auto& [pages, a] : live_)
      if (!a.managed) protect(a, PROT_NONE);
  if (!open_)
    for (const uintptr_t pages : opened_)
      if (const auto a = live_.find(pages); a != live_.end()) protect(a->second, PROT_NONE);
  open_ = false;
  opened_.clear();
}

std::string DeviceMemory::overrun() {
  if constexpr (asan) return "";  // ASan has reported it
  const std::lock_guard lock(mutex_);
  for (const auto& [pages, a] : live_) {
    const Range sides[] = {{a.pages, a.begin}, {a.begin + a.bytes, a.pages_end}};
    for (const auto [begin, end] : sides) {
      if (is_whole(begin, end)) continue;
      uintptr_t at = begin;
      while (*reinterpret_cast<unsigned char*>(at) == canary_byte(at)) ++at;
      paint_canary(begin, end);
      char where[300];
      describe(at, where, sizeof where);
      return std::string("wrote memory it does not own: ") + where;
    }
  }
  return "";
}

}  // namespace simt::host

// ASan's report names the line; this adds a description of the address.
#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_on_error() {
  void* address = __asan_get_report_address();
  if (!simt::host::device_memory().holds(address)) return;
  char where[300];
  simt::host::device_memory().describe(reinterpret_cast<uintptr_t>(address), where, sizeof where);
  simt::host::say("%s: %s\n", simt::host::culprit() ? simt::host::culprit() : "host code", where);
}
#endif
