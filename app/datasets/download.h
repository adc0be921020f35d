// A file from the network, whole and checked: by curl, which knows proxies, certificates and how to
// resume a broken transfer, and sha256sum.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace bv {

struct Download {
  std::string url, sha256;  // sha256: 64 hexadecimal digits in lower case
  std::string path;         // the file; what is there already is continued
};
// True when the file is there and has the checksum; false if a stop signal came. Then, and after a
// broken transfer (RunError), what has arrived stays, to be resumed; after a wrong checksum
// (RunError) nothing does. Ten times a second `progress` is told how much has arrived.
bool download(const Download&, const std::function<void(uint64_t bytes)>& progress);

}  // namespace bv
