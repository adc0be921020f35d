// Diagnostics of a `make try` program: errors that it didn't check, launches that never ran, and
// AddressSanitizer's reports in one line.
#include "simt/try.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <mutex>
#include <sstream>
#include <string>

#include "simt/counters/counting.h"
#include "simt/counters/lines.h"
#include "simt/device/control.h"
#include "simt/device/watch.h"
#include "simt/host/error.h"
#include "simt/host/memory.h"
#include "simt/races/races.h"

namespace simt {
namespace {

std::deque<Asked>& all_asked() {
  static auto& all = *new std::deque<Asked>;
  return all;
}

#ifdef __SANITIZE_ADDRESS__
// "#3 0x55d1 in add(float*) my.cu:7:13": the innermost place outside the stand-in and the system.
std::string place_in(const std::string& report) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    const size_t frame = line.find_first_not_of(' '), file = line.rfind(' ');
    if (frame == line.npos || line[frame] != '#' || line.find(':', file) == line.npos) continue;
    const std::string place = line.substr(file + 1);
    const bool ours =
        place.find("simt/device/") != place.npos || place.find("simt/host/") != place.npos ||
        place.find("simt/include/") != place.npos || place.find("simt/try.") != place.npos ||
        place.find("simt/races/hooks") != place.npos;
    if (!ours && !place.starts_with("/usr/") && !place.starts_with("../")) return place;
  }
  return {};
}

// ": tile[33][0]", if the access is beyond shared memory.
std::string shared_element() {
  void* const at = __asan_get_report_address();
  if (!watching || !Races::name_shared || host::device_memory().holds(at)) return "";
  return ": " + Races::name_shared(reinterpret_cast<uintptr_t>(at));
}

// Shortens AddressSanitizer's report to a line: the access and its place in the program.
void shorten(const char* report) {
  const std::string text = report, place = place_in(text), size = " of size ";
  const size_t access = text.find(size);
  const auto has = [&](const char* words) { return text.find(words) != text.npos; };
  if (place.empty())
    std::fputs(report, stderr);
  else if (access != text.npos)
    std::fprintf(stderr, "simt: %s: a %s of %d bytes where it owns none%s\n", place.c_str(),
                 has("WRITE of size") ? "write" : "read",
                 std::atoi(text.c_str() + access + size.size()),
                 has("use-after-poison") ? shared_element().c_str() : "");
  else if (has("memory access."))
    std::fprintf(stderr, "simt: %s: a %s where it owns no memory\n", place.c_str(),
                 has("caused by a WRITE") ? "write" : "read");
  else
    std::fprintf(stderr, "simt: %s: %s\n", place.c_str(),
                 text.substr(text.find("ERROR: "), 80).c_str());
}

[[maybe_unused]] const bool shortened = [] {
  __asan_set_error_report_callback(shorten);
  __sanitizer_set_report_fd(reinterpret_cast<void*>(open("/dev/null", O_WRONLY | O_CLOEXEC)));
  return true;
}();
#endif

// An error that nobody has asked for: a thread's first since its last cudaGetLastError().
struct Missed {
  size_t number = 0;  // in the program, from 1
  std::string words{};
  std::vector<void*> stack{};  // where the call failed; empty if the words say where

  std::string text() const {
    std::string place;
    if constexpr (watching) place = stack.empty() ? "" : Races::caller(stack);
    return place + words;
  }
};
// The first of all threads', saved when its thread ends.
Missed first_missed;
struct KeepFirst : Missed {
  ~KeepFirst() {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (host::has_error() && (!first_missed.number || number < first_missed.number))
      first_missed = *this;
  }
};
void keep_first(cudaError_t code) {
  static std::atomic<size_t> errors = 0;
  thread_local KeepFirst first;
  first.number = ++errors;
  first.words = cudaGetErrorString(code);
  first.stack.resize(code == host::sticky() ? 0 : 16);
  first.stack.resize(size_t(backtrace(first.stack.data(), int(first.stack.size()))));
}
[[maybe_unused]] const bool named = watching && (line_of = Races::caller);
[[maybe_unused]] const bool kept = (host::on_first_error = keep_first) != nullptr;

std::string missed() {
  for (const Asked& asked : all_asked()) {
    const std::string launched =
        std::string(asked.site.file_name()) + ":" + std::to_string(asked.site.line()) + ": ";
    if (watching && first_missed.number) break;  // it names its line, too
    if (!asked.refusal.empty()) return launched + asked.refusal;
    if (asked.ran) continue;
    if (first_missed.number) break;
    return launched + asked.kernel +
           " was launched but never ran: nothing waited for it (cudaDeviceSynchronize)";
  }
  return first_missed.text();
}

// If the program exits with 0, prints an error that it missed. An error or a race makes the code 1.
void at_exit(int status, void*) {
  const std::string text = status == 0 ? missed() : "";
  std::fflush(nullptr);
  if (!text.empty())
    std::fprintf(stderr, "simt: %s\n", text.c_str());
  else if (status == 0 && !launches())
    std::fprintf(stderr, "simt: no kernel was launched\n");
  bool races = false;
  if constexpr (watching) {
    const std::string words = Races::instance().last_words();
    if (!words.empty()) std::fprintf(stderr, "simt: %s\n", words.c_str());
    races = Races::instance().found() != 0;
  }
  if (!text.empty() || (races && status == 0)) std::_Exit(1);
}

[[maybe_unused]] const bool registered = on_exit(at_exit, nullptr) == 0;

}  // namespace

Asked& ask(const char* kernel, Site site) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Asked& asked = all_asked().emplace_back();
  asked.kernel = kernel, asked.site = site;
  return asked;
}

void made_at(const void* allocation, Site site) {
  const std::string file = site.file_name();
  host::device_memory().made_at(
      allocation, file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line()));
}

void tell([[maybe_unused]] const char* kernel, [[maybe_unused]] const std::vector<Passed>& all) {
  if constexpr (counting) {
    std::vector<KernelArgument> arguments;
    for (const Passed& p : all)
      if (const uintptr_t end = p.pointer ? host::device_memory().end_of(p.pointer) : 0)
        arguments.push_back({reinterpret_cast<uintptr_t>(p.pointer), end, p.element_bytes});
      else
        arguments.emplace_back();
    Lines::pass(kernel, std::move(arguments));
  }
}

}  // namespace simt

// Leaks are of no interest here.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
