// What a program of `make try` says about itself: errors that it didn't look at, launches that never
// ran, and AddressSanitizer's reports in one line.
#include "kernels/simt/try.h"

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <mutex>
#include <sstream>
#include <string>

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
    const bool ours = place.find("kernels/simt/device/") != place.npos ||
                      place.find("kernels/simt/host/") != place.npos ||
                      place.find("kernels/simt/include/") != place.npos ||
                      place.find("kernels/simt/try.") != place.npos;
    if (!ours && !place.starts_with("/usr/") && !place.starts_with("../")) return place;
  }
  return {};
}

// The report's own text is long; what a reader needs of it is what was done, and where.
void shorten(const char* report) {
  const std::string text = report, place = place_in(text);
  const size_t access = text.find(" of size ");
  if (place.empty() || access == text.npos || access < 5) {
    std::fputs(report, stderr);
    return;
  }
  std::fprintf(stderr, "simt: %s: %s of %ld bytes where it owns none\n", place.c_str(),
               text.compare(access - 5, 5, "WRITE") ? "a read" : "a write",
               std::atol(text.c_str() + access + 9));
}

[[maybe_unused]] const bool shortened = [] {
  __asan_set_error_report_callback(shorten);
  __sanitizer_set_report_fd(reinterpret_cast<void*>(open("/dev/null", O_WRONLY | O_CLOEXEC)));
  return true;
}();
#endif

// A program that believes all went well is told what it missed.
void at_exit(int status, void*) {
  if (status != 0) return;
  std::string missed;
  if (const cudaError_t error = cudaPeekAtLastError(); error != cudaSuccess)
    missed = cudaGetErrorString(error);
  else
    for (const Asked& asked : all_asked())
      if (!asked.ran && missed.empty())
        missed = std::string(asked.site.file_name()) + ":" + std::to_string(asked.site.line()) +
                 ": " + asked.kernel +
                 " was launched but never ran: nothing waited for it (cudaDeviceSynchronize)";
  if (missed.empty()) return;
  std::fflush(nullptr);
  std::fprintf(stderr, "simt: %s\n", missed.c_str());
  std::_Exit(1);
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

}  // namespace simt

// Leaks are of no interest here.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
