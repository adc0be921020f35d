// Downloads a file and checks it: with curl, which handles proxies, certificates and broken
// transfers, and sha256sum.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"

namespace bv {

// A transfer that failed, or brought another file: not this machine's fault.
struct TransferError : RunError {
  using RunError::RunError;
};

struct Download {
  std::string url, sha256;  // sha256: 64 hexadecimal digits in lower case, or the first of them
  std::string path;         // where to save it; a partial download there is resumed
  // The complete file's name; another process that downloads it is waited for. Empty: it stays at
  // `path`, and another process there is an error.
  std::string into = {};
  // Throws UserError if the complete file is of no use.
  std::function<void()> check = {};
};
// The file's SHA-256 once it is complete and begins with Download::sha256; nothing if a stop signal
// came. After a stop signal or a broken transfer the partial file stays, to be resumed; one with a
// wrong checksum, or of no use, is removed. Calls `progress` ten times a second with the
// bytes so far.
std::optional<std::string> download(const Download&,
                                    const std::function<void(uint64_t bytes)>& progress);
// The checksum of a file on this machine.
std::string sha256_of(const std::string& path);

}  // namespace bv
