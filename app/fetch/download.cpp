#include "app/fetch/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/other_program.h"
#include "base/stop_signals.h"
#include "base/text.h"

namespace bv {
namespace {

// The part downloaded so far, locked against other processes that download to the same place.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) : path_(path) { open_again(); }
  ~PartialFile() {
    if (!locked_ || size() > 0) return;
    unlink(path_.c_str());
    unlink(headers().c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // False if another process holds the lock.
  bool lock() {
    while (flock(file_->fd(), LOCK_EX | LOCK_NB) == 0) {
      if (is_at_path()) return locked_ = true;
      open_again();  // the other process has renamed or removed the file opened here
    }
    return false;
  }
  uint64_t size() const {
    struct stat status {};
    return fstat(file_->fd(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  }
  void empty() {
    if (ftruncate(file_->fd(), 0) != 0) throw WriteError("write", path_, errno);
  }
  // The headers of the response that the partial file began with; they identify its version.
  std::string headers() const { return path_ + ".headers"; }
  void rename_to(const std::string& path) {
    if (fsync(file_->fd()) != 0) throw WriteError("write", path_, errno);
    if (rename(path_.c_str(), path.c_str()) != 0) throw WriteError("write", path, errno);
  }

 private:
  void open_again() {
    // curl inherits the descriptor, so a curl that outlives this process keeps the lock.
    file_.emplace(open(path_.c_str(), O_RDWR | O_CREAT, 0666));
    if (!*file_) throw WriteError("write", path_, errno);
  }
  bool is_at_path() const {
    struct stat opened {
    }, there{};
    return fstat(file_->fd(), &opened) == 0 && stat(path_.c_str(), &there) == 0 &&
           opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
  }

  std::string path_;
  std::optional<Descriptor> file_;
  bool locked_ = false;
};

struct CurlEnd {
  int code, http;       // exit code; HTTP status
  std::string message;  // "curl: (22) The requested URL returned error: 404"
};

// The whole file, as the headers describe it.
struct WholeFile {
  std::string version;  // for If-Range: a strong ETag, or the time of its last change; or ""
  std::optional<uint64_t> bytes;
};
WholeFile whole_file(const std::string& headers) {
  std::string etag, changed;
  WholeFile whole;
  std::ifstream file(headers);
  bool from_zero = false;  // false: curl has resumed; content-length counts only the rest
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("HTTP/")) {  // the last response counts
      etag = changed = "", whole = {};
      from_zero = line.find(" 200") != line.npos;
    }
    const size_t colon = line.find(':'), begin = line.find_first_not_of(" :", colon);
    if (colon == line.npos || begin == line.npos) continue;
    const std::string value = line.substr(begin, line.find_last_not_of("\r ") + 1 - begin);
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == "etag" && !value.starts_with("W/")) etag = value;
    if (name == "last-modified") changed = value;
    if (name == "content-length" && from_zero) whole.bytes = parse_unsigned(value);
  }
  whole.version = etag.empty() ? changed : etag;
  return whole;
}

// version: of the part downloaded so far.
CurlEnd run_curl(const Download& d, const PartialFile& file, const std::string& version,
                 const std::function<bool()>& go_on) {
  std::vector<std::string> words = split(
      "curl --silent --show-error --fail --location --globoff --retry 2 --connect-timeout 30 "
      "--speed-limit 1 --speed-time 60 --continue-at -",
      ' ');
  if (file.size() == 0) words.insert(words.end(), {"--dump-header", file.headers()});
  // If its version differs, the server sends the whole file, which curl refuses to append.
  if (!version.empty()) words.insert(words.end(), {"--header", "If-Range: " + version});
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
bool could_not_write(int code) { return code == 23 || code == 128 + SIGXFSZ; }
// Whether the server can't send ranges, or has nothing after the part downloaded so far.
bool must_begin_again(const CurlEnd& end) {
  return end.code == 33 || end.code == 36 || end.http == 416;
}

// Downloads the rest. Throws if no more data arrives.
void fetch_rest(const Download& d, PartialFile& file, const std::function<bool()>& go_on) {
  constexpr int max_attempts = 20;
  for (int attempt = 1;; ++attempt) {
    const uint64_t before = file.size();
    const WholeFile whole = before > 0 ? whole_file(file.headers()) : WholeFile();
    if (whole.bytes && *whole.bytes == before) return;
    const CurlEnd end = run_curl(d, file, whole.version, go_on);
    if (whole_file(file.headers()).version.empty()) unlink(file.headers().c_str());
    if (end.code == 0 || stop_signal()) return;
    if (before > 0 && must_begin_again(end) && attempt < max_attempts) {
      file.empty();
      continue;
    }
    if (file.size() > before && broke_off(end.code) && attempt < max_attempts) continue;
    const std::string resume = file.size() > 0
                                   ? "; the same command resumes from the " +
                                         std::to_string(file.size()) + " bytes in " + d.path
                                   : "";
    if (could_not_write(end.code))
      throw RunError("can't write " + d.path + ", is the disk full? (" + end.message + ")" +
                     resume);
    throw TransferError(d.url + ": " + end.message + resume);
  }
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// False after a stop signal.
bool wait_for_lock(const Download& d, PartialFile& file) {
  while (!file.lock()) {
    if (d.into.empty()) throw UserError(d.path + ": another process is downloading into it");
    if (stop_signal()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

}  // namespace

std::optional<std::string> download(const Download& d,
                                    const std::function<void(uint64_t)>& progress) {
  PartialFile file(d.path);
  if (!wait_for_lock(d, file)) return {};
  // The process that held the lock has downloaded the file.
  if (!d.into.empty() && exists(d.into)) return sha256_of(d.into);
  const bool complete =
      file.size() > 0 && !d.sha256.empty() && sha256_of(d.path).starts_with(d.sha256);
  if (!complete)
    fetch_rest(d, file, [&] {
      progress(file.size());
      return stop_signal() == 0;
    });
  if (stop_signal()) return {};
  const std::string sha256 = sha256_of(d.path);
  if (!sha256.starts_with(d.sha256)) {
    file.empty();
    throw TransferError(d.url + ": its SHA-256 is " + sha256 + ", not " + d.sha256 +
                        (d.sha256.size() < 64 ? "..." : "") +
                        "; it was damaged in transit, or is another file");
  }
  try {
    if (d.check) d.check();
  } catch (const UserError& e) {
    file.empty();
    throw UserError(d.url + ": " + e.what());
  }
  unlink(file.headers().c_str());
  if (!d.into.empty()) file.rename_to(d.into);
  return sha256;
}

}  // namespace bv
