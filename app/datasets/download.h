// Downloads a file and checks it: with curl, which handles proxies, certificates and broken
// transfers, and sha256sum.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace bv {

struct Download {
  std::string url, sha256;  // sha256: 64 hexadecimal digits in lower case
  std::string path;         // where to save it; a partial download there is resumed
};
// True once the file is complete and its checksum matches; false if a stop signal came. After a
// stop signal or a broken transfer (RunError) the partial file stays, to be resumed; after a wrong
// checksum (RunError) it is removed. Calls `progress` ten times a second with the bytes so far.
bool download(const Download&, const std::function<void(uint64_t bytes)>& progress);

}  // namespace bv
