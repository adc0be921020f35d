// A file from the network, whole and checked: by curl, which knows proxies, certificates and how to
// go on where a transfer broke off, and sha256sum.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace bv {

struct Download {
  std::string url, sha256;  // sha256: 64 hexadecimal digits in lower case
  std::string path;         // the file; what is there already is continued
};
// True when the file is there and has the checksum; false if a stop signal came, which leaves what
// has arrived to go on from. Ten times a second `progress` is told how much that is. Throws RunError:
// a broken transfer leaves what has arrived, a wrong checksum nothing.
bool download(const Download&, const std::function<void(uint64_t bytes)>& progress);

}  // namespace bv
