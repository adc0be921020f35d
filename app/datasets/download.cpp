#include "app/datasets/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/other_program.h"
#include "base/stop_signals.h"
#include "base/text.h"

namespace bv {
namespace {

// The part downloaded so far, locked against other processes that download to the same place.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path)
      : path_(path), file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (!file_) throw WriteError("write", path, errno);
    if (flock(file_.fd(), LOCK_EX | LOCK_NB) != 0)
      throw UserError(path + ": another process is downloading into it");
  }
  ~PartialFile() {
    if (size() == 0) unlink(path_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t size() const {
    struct stat status {};
    return fstat(file_.fd(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  }
  void empty() {
    if (ftruncate(file_.fd(), 0) != 0) throw WriteError("write", path_, errno);
  }
  std::string sha256() const {
    const ProgramEnd end = run_to_end(
        {"sha256sum"}, [] { return true; }, path_);
    if (end.code != 0) throw RunError("sha256sum: " + end.output);
    return end.output.substr(0, end.output.find(' '));
  }

 private:
  std::string path_;
  Descriptor file_;
};

struct CurlEnd {
  int code, http;       // exit code; HTTP status
  std::string message;  // "curl: (22) The requested URL returned error: 404"
};

CurlEnd run_curl(const Download& d, const std::function<bool()>& go_on) {
  std::vector<std::string> words = split(
      "curl --silent --show-error --fail --location --globoff --retry 2 --connect-timeout 30 "
      "--speed-limit 1 --speed-time 60 --continue-at -",
      ' ');
  words.insert(words.end(), {"--output", d.path, "--write-out", "\n%{http_code}", "--url", d.url});
  const ProgramEnd end = run_to_end(words, go_on);
  std::vector<std::string> lines = split(end.output, '\n');
  CurlEnd result{.code = end.code,
                 .http = static_cast<int>(parse_integer(lines.back()).value_or(0)),
                 .message = "curl ended with code " + std::to_string(end.code)};
  for (const std::string& line : lines)
    if (line.starts_with("curl: ")) result.message = line;
  return result;
}

// Errors after which the download can be resumed.
bool broke_off(int code) {
  constexpr int codes[] = {18, 28, 52, 55, 56, 92};  // too short, too slow, reset, ...
  return std::ranges::count(codes, code) > 0;
}
// The server can't send ranges, or has nothing after the part downloaded so far.
bool must_begin_again(const CurlEnd& end) {
  return end.code == 33 || end.code == 36 || end.http == 416;
}

// Downloads the rest. Throws if no more data arrives.
void fetch_rest(const Download& d, PartialFile& file, const std::function<bool()>& go_on) {
  constexpr int max_attempts = 20;
  for (int attempt = 1;; ++attempt) {
    const uint64_t before = file.size();
    const CurlEnd end = run_curl(d, go_on);
    if (end.code == 0 || stop_signal()) return;
    if (before > 0 && must_begin_again(end) && attempt < max_attempts) {
      file.empty();
      continue;
    }
    if (file.size() > before && broke_off(end.code) && attempt < max_attempts) continue;
    throw RunError(d.url + ": " + end.message +
                   (file.size() > 0 ? "; the same command resumes from the " +
                                          std::to_string(file.size()) + " bytes in " + d.path
                                    : ""));
  }
}

}  // namespace

bool download(const Download& d, const std::function<void(uint64_t)>& progress) {
  PartialFile file(d.path);
  if (file.size() > 0 && file.sha256() == d.sha256) return true;
  fetch_rest(d, file, [&] {
    progress(file.size());
    return stop_signal() == 0;
  });
  if (stop_signal()) return false;
  if (const std::string sha256 = file.sha256(); sha256 != d.sha256) {
    file.empty();
    throw RunError(d.url + ": its SHA-256 is " + sha256 + ", not " + d.sha256 +
                   "; it was damaged on its way, or is another file");
  }
  return true;
}

}  // namespace bv
