// Downloads a file with curl, which handles proxies, certificates and broken transfers, and checks
// it with sha256sum.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"

namespace bv {

// A transfer that failed or delivered another file: not this machine's fault.
struct TransferError : RunError {
  using RunError::RunError;
};

struct Download {
  std::string url, sha256;  // sha256: 64 hexadecimal digits in lower case, or the first of them
  std::string path;         // where to save it; a partial download there is resumed
  // The complete file's name; waits for another process that is downloading it. Empty: the file
  // stays at `path`, and another process there is an error.
  std::string into = {};
  // Throws UserError if the complete file is unusable; download() then does, too.
  std::function<void()> check = {};
};
// Returns the complete file's SHA-256, which begins with Download::sha256, or nothing after a stop
// signal. After a stop signal or a broken transfer the partial file remains, to be resumed; a file
// with a wrong checksum or that `check` refuses is removed. Calls `progress` ten times a second
// with the bytes so far.
std::optional<std::string> download(const Download&,
                                    const std::function<void(uint64_t bytes)>& progress);

}  // namespace bv
